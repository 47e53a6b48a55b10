package io.nccl4j.tools.cli;

import java.io.Console;
import java.io.IOException;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileSystemException;
import java.util.concurrent.Callable;
import java.util.function.ToIntBiFunction;
import picocli.CommandLine;
import picocli.CommandLine.ExitCode;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Model.OptionSpec;
import picocli.CommandLine.RunLast;

/**
 * The common behaviour of the commands: {@code --help} goes to stdout, an error that a user can fix
 * is one line on stderr, and the exit status distinguishes bad arguments from other failures.
 */
public final class Commands {
  /** The exit status of success. */
  public static final int OK = ExitCode.OK;

  /** The exit status of a failure other than bad arguments, such as a file that cannot be read. */
  public static final int FAILED = ExitCode.SOFTWARE;

  /** The exit status for invalid arguments. */
  public static final int BAD_ARGUMENTS = ExitCode.USAGE;

  /** The exit status of a measurement that ran, but some data was wrong. */
  public static final int WRONG_DATA = 3;

  /** The exit status of a time-out. */
  public static final int TIMED_OUT = 4;

  private Commands() {}

  /**
   * {@return a command line, ready to be executed}
   *
   * @param flags an object with picocli's annotations, named like the script; {@code --help} is
   *     added to its options
   * @param action runs once the flags are parsed and returns the exit status. An {@link
   *     IllegalArgumentException} means that the arguments are invalid; of an {@link IOException}
   *     or {@link IllegalStateException}, the message is printed; of other exceptions, the stack
   *     trace
   * @param out receives the help and the action's output; a write error is a failure
   * @param err receives messages
   */
  public static CommandLine of(
      Object flags, Callable<Integer> action, PrintStream out, PrintStream err) {
    CommandLine line = new CommandLine(CommandSpec.wrapWithoutInspection(action));
    line.getCommandSpec()
        .addMixin("flags", CommandSpec.forAnnotatedObject(flags))
        .addOption(
            OptionSpec.builder("-h", "--help")
                .usageHelp(true)
                .description("print this help")
                .build());
    OptionValue.convert(line);
    return line.setOut(new PrintWriter(out, true, StandardCharsets.UTF_8))
        .setErr(new PrintWriter(err, true, StandardCharsets.UTF_8))
        .setExecutionStrategy(
            parsed -> {
              OptionValue.checkBounds(line);
              return written(line, out, new RunLast().execute(parsed));
            })
        .setParameterExceptionHandler((e, _) -> refused(line, e))
        .setExecutionExceptionHandler((e, _, _) -> failed(line, e));
  }

  /**
   * Returns the exit status, or reports a failure if not all output could be written, so that a
   * truncated result is not taken for the whole.
   *
   * @param line the command
   * @param out the stream that it has printed to
   * @param status its exit status so far
   */
  public static int written(CommandLine line, PrintStream out, int status) {
    if (out.checkError() && status == OK) {
      return explained(
          line,
          new IOException("cannot write to stdout; its device is full or its reader has exited"));
    }
    return status;
  }

  /**
   * Reports invalid arguments in one line, and returns the exit status.
   *
   * @param line the command, named like its script
   * @param e the exception, whose message names the argument and the rule
   */
  public static int refused(CommandLine line, Exception e) {
    line.getErr().printf("%s: %s; see --help%n", line.getCommandName(), e.getMessage());
    return BAD_ARGUMENTS;
  }

  private static int failed(CommandLine line, Exception e) throws Exception {
    return switch (e) {
      case IllegalArgumentException argument -> refused(line, argument);
      case IOException failure -> explained(line, failure);
      case UncheckedIOException failure -> explained(line, failure.getCause());
      case IllegalStateException failure -> explained(line, failure);
      default -> throw e;
    };
  }

  private static int explained(CommandLine line, Exception e) {
    // The message of a FileSystemException is the file alone, without what is wrong with it.
    String text = e instanceof FileSystemException ? e.toString() : e.getMessage();
    line.getErr().println(line.getCommandName() + ": " + text);
    return FAILED;
  }

  /** {@return whether this process runs on a terminal, on which to show progress} */
  // System.console() is null again without a terminal since JDK 25, as it was before JDK 22.
  @SuppressWarnings("SystemConsoleNull")
  public static boolean onTerminal() {
    Console console = System.console();
    return console != null && console.isTerminal();
  }

  /**
   * Runs a command on the streams of this process and exits with its status.
   *
   * @param command the command, given stdout and stderr; it returns the exit status
   */
  public static void exit(ToIntBiFunction<PrintStream, PrintStream> command) {
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    int status = command.applyAsInt(out, System.err);
    out.flush();
    System.exit(status);
  }
}
