package io.nccl4j.tools.perf;

import io.nccl4j.tools.processes.Processes;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import picocli.CommandLine;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.ParseResult;

/** The bandwidth command for callers that run it in a separate process and read its JSON. */
public final class PerfCommand {
  /** What the callers set themselves, or cannot use. */
  private static final List<String> RESERVED =
      List.of(
          "-J",
          "--html",
          "--compare",
          "--percentiles",
          "--child",
          "--algo",
          "--proto",
          "--show-algorithm");

  /** The beginning of the command's message for an algorithm that NCCL does not have. */
  public static final String REFUSED = NcclChoices.REFUSED;

  private PerfCommand() {}

  /**
   * {@return the command line, without arguments, that starts the command in this process's Java}
   *
   * @param arguments the number of arguments of this process's own command
   * @throws IOException if this process's command line cannot be read
   */
  public static List<String> inThisJava(int arguments) throws IOException {
    List<String> command = new ArrayList<>(Processes.ownCommand(arguments));
    // The last word is a main class, or a tool's name after the main class of all tools.
    boolean named = command.getLast().indexOf('.') < 0;
    command.set(command.size() - 1, named ? "perf" : Perf.class.getName());
    return command;
  }

  /**
   * Checks arguments without running them. They must ask for one table of one type, operator and
   * root.
   *
   * @param arguments the arguments
   * @param environment the environment, which may hold a launcher's variables
   * @return the parsed arguments
   * @throws IllegalArgumentException if they are invalid, with the command's message
   */
  public static Asked check(List<String> arguments, Map<String, String> environment) {
    Flags flags = new Flags();
    boolean sizes;
    try {
      CommandLine line = Flags.parser(flags);
      ParseResult parsed = line.parseArgs(arguments.toArray(String[]::new));
      for (String flag : RESERVED) {
        if (parsed.hasMatchedOption(flag)) {
          throw new BadArguments(flag + " is not for a sweep; nccl4j sweep --help lists its flags");
        }
      }
      sizes = Stream.of("-b", "-e", "-i", "-f").anyMatch(parsed::hasMatchedOption);
      flags.check(line);
      if (!flags.collective.hasAlgorithms()) {
        throw new BadArguments(
            flags.collective.label()
                + " consists of sends and receives, for which there is no choice of algorithms");
      }
      if (!Job.in(environment).alone()) {
        throw new BadArguments(
            "this is " + Job.in(environment).describe() + "; start it without a launcher");
      }
    } catch (ParameterException | BadArguments e) {
      throw new IllegalArgumentException(e.getMessage(), e);
    }
    boolean several =
        flags.types.list().size() > 1
            || (flags.collective.reduces() && flags.operators.list().size() > 1)
            || (flags.collective.rooted() && flags.root < 0)
            || flags.cycles != 1;
    if (several) {
      throw new IllegalArgumentException(
          "-d, -o, -r and -N select several tables; use one type, one operator, one root and one cycle");
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
        sizes,
        flags.help);
  }

  /**
   * The parsed arguments.
   *
   * @param collective the collective
   * @param program the prefix of the command's messages
   * @param backend the backend's name, or an empty string if it is chosen automatically
   * @param processes whether the command starts processes itself
   * @param sizes whether sizes are given
   * @param help whether only the help is requested
   */
  public record Asked(
      String collective,
      String program,
      String backend,
      boolean processes,
      boolean sizes,
      boolean help) {}
}
