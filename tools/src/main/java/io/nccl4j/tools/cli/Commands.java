package io.nccl4j.tools.cli;

import java.io.IOException;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.Callable;
import java.util.function.ToIntBiFunction;
import picocli.CommandLine;
import picocli.CommandLine.ExitCode;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Model.OptionSpec;
import picocli.CommandLine.RunLast;

/**
 * What the examples' commands do alike: {@code --help} goes to the output, what a user can mend is
 * told in one line, and the exit status says whose turn it is.
 */
public final class Commands {
  /** Done. */
  public static final int OK = ExitCode.OK;

  /** A file, or something else outside of the command line, was not as it should be. */
  public static final int FAILED = ExitCode.SOFTWARE;

  /** The command line asks for what cannot be. */
  public static final int BAD_ARGUMENTS = ExitCode.USAGE;

  private Commands() {}

  /**
   * {@return a command line, which is yet to be executed}
   *
   * @param flags an object with picocli's annotations, whose name is that of the script; without
   *     the option {@code --help}, which is added
   * @param action what to do once the flags are filled in; it returns the exit status. An {@link
   *     IllegalArgumentException} of it is about the arguments; an {@link IOException} or {@link
   *     IllegalStateException} is a failure that its message explains; all else is printed with its
   *     stack, as a failure
   * @param out where help goes, and what the action prints; a failure where not all of it could be
   *     written
   * @param err where messages go
   */
  public static CommandLine of(
      Object flags, Callable<Integer> action, PrintStream out, PrintStream err) {
    CommandLine line = new CommandLine(CommandSpec.wrapWithoutInspection(action));
    line.getCommandSpec()
        .addMixin("flags", OptionValue.spec(flags))
        .addOption(
            OptionSpec.builder("-h", "--help").usageHelp(true).description("print this").build());
    return line.setOut(new PrintWriter(out, true, StandardCharsets.UTF_8))
        .setErr(new PrintWriter(err, true, StandardCharsets.UTF_8))
        .setExecutionStrategy(parsed -> written(line, out, new RunLast().execute(parsed)))
        .setParameterExceptionHandler((e, _) -> refused(line, e))
        .setExecutionExceptionHandler((e, _, _) -> failed(line, e));
  }

  /**
   * Returns the exit status, which is a failure, that the command tells of, where not all of its
   * output could be written: half a result would be taken for the result.
   *
   * @param line the command
   * @param out what it has printed to
   * @param status what it has ended with
   */
  public static int written(CommandLine line, PrintStream out, int status) {
    if (out.checkError() && status == OK) {
      return explained(
          line, new IOException("the output cannot be written, or nobody reads it any more"));
    }
    return status;
  }

  /**
   * Tells what is wrong with the arguments in one line, and returns the exit status.
   *
   * @param line the command, whose name is that of its script
   * @param e what says which argument is wrong, and why
   */
  public static int refused(CommandLine line, Exception e) {
    String name = line.getCommandName();
    line.getErr()
        .printf("%s: %s; scripts/%s --help says what is allowed%n", name, e.getMessage(), name);
    return BAD_ARGUMENTS;
  }

  private static int failed(CommandLine line, Exception e) throws Exception {
    return switch (e) {
      case IllegalArgumentException argument -> refused(line, argument);
      case IOException failure -> explained(line, failure);
      case IllegalStateException failure -> explained(line, failure);
      default -> throw e;
    };
  }

  private static int explained(CommandLine line, Exception e) {
    line.getErr().println(line.getCommandName() + ": " + e.getMessage());
    return FAILED;
  }

  /**
   * Runs a command on the streams of this process and ends it with the exit status.
   *
   * @param command what to run with output and messages; it returns the exit status
   */
  public static void exit(ToIntBiFunction<PrintStream, PrintStream> command) {
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    int status = command.applyAsInt(out, System.err);
    out.flush();
    System.exit(status);
  }
}
