package io.nccl4j.tools.perf;

import io.nccl4j.tools.cli.OptionValue;
import io.nccl4j.tools.processes.Processes;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import picocli.CommandLine;
import picocli.CommandLine.ParameterException;

/** The bandwidth command as another program runs it: in a process of its own, for its JSON. */
public final class PerfCommand {
  private PerfCommand() {}

  /**
   * {@return what starts the command in a Java like this process's, but for its arguments}
   *
   * @param arguments how many arguments this process's own command got
   * @throws IOException if this process's command line cannot be read
   */
  public static List<String> inThisJava(int arguments) throws IOException {
    List<String> command = new ArrayList<>(Processes.ownCommand(arguments));
    // The last word is the main class, or the name of a tool after the main class of all tools.
    boolean named = command.getLast().indexOf('.') < 0;
    command.set(command.size() - 1, named ? "perf" : Perf.class.getName());
    return command;
  }

  /**
   * Checks arguments that are to give one table of one type, operator and root, without running
   * them.
   *
   * @param arguments the arguments
   * @param environment what a launcher may have left variables in
   * @return what was asked for
   * @throws IllegalArgumentException if they are not allowed, in the command's own words
   */
  public static Asked check(List<String> arguments, Map<String, String> environment) {
    Flags flags = new Flags();
    try {
      new CommandLine(OptionValue.spec(flags)).parseArgs(arguments.toArray(String[]::new));
      flags.check();
      if (!Job.in(environment).alone()) {
        throw new BadArguments(
            "this is " + Job.in(environment).describe() + "; start it without a launcher");
      }
    } catch (ParameterException | BadArguments e) {
      // Picocli puts the type's name around what an argument's converter says.
      Throwable cause = e.getCause() instanceof BadArguments bad ? bad : e;
      throw new IllegalArgumentException(cause.getMessage(), e);
    }
    boolean several =
        flags.types.list().size() > 1
            || (flags.collective.reduces() && flags.operators.list().size() > 1)
            || (flags.collective.rooted() && flags.root < 0)
            || flags.cycles != 1;
    if (several) {
      throw new IllegalArgumentException(
          "-d, -o, -r and -N ask for several tables; take one type, one operator, one root and one cycle");
    }
    return new Asked(
        flags.collective.label(),
        flags.collective.program(),
        switch (flags.backend) {
          case AUTO -> "";
          case NCCL -> "nccl";
          case REFERENCE -> "reference";
        },
        flags.ranks.procs != null,
        flags.help);
  }

  /**
   * What arguments ask for.
   *
   * @param collective the collective
   * @param program what the command's messages begin with
   * @param backend the backend by its name, or an empty text where that is left open
   * @param processes whether the command is to start processes of its own
   * @param help whether only the help is asked for
   */
  public record Asked(
      String collective, String program, String backend, boolean processes, boolean help) {}
}
