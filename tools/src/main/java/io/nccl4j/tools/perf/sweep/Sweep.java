package io.nccl4j.tools.perf.sweep;

import io.nccl4j.tools.cli.Commands;
import io.nccl4j.tools.cli.OutputFile;
import io.nccl4j.tools.perf.PerfCommand;
import io.nccl4j.tools.perf.PerfCommand.Asked;
import io.nccl4j.tools.perf.report.PerfRun;
import java.io.IOException;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The sweep command: measures every choice of algorithm and protocol. */
public final class Sweep {
  private final PrintStream out;
  private final PrintStream err;
  private final Map<String, String> environment;
  private final List<String> perf;

  /**
   * Creates a command.
   *
   * @param out receives the table
   * @param err receives messages
   * @param environment the environment of the bandwidth command
   * @param perf the command line of the bandwidth command, without arguments
   */
  Sweep(PrintStream out, PrintStream err, Map<String, String> environment, List<String> perf) {
    this.out = out;
    this.err = err;
    this.environment = environment;
    this.perf = perf;
  }

  /**
   * Runs the command and exits with its status.
   *
   * @param args the arguments
   * @throws IOException if this process's own command line cannot be read
   */
  public static void main(String[] args) throws IOException {
    List<String> perf = PerfCommand.inThisJava(args.length);
    Commands.exit((out, err) -> new Sweep(out, err, System.getenv(), perf).run(args));
  }

  /** Runs the command and returns its exit status. */
  int run(String... args) {
    Flags flags = new Flags();
    return Commands.of(flags, () -> sweep(flags), out, err)
        .setUnmatchedOptionsArePositionalParams(true)
        .execute(args);
  }

  private int sweep(Flags flags) throws IOException {
    List<String> arguments = flags.perfArguments();
    Asked asked = PerfCommand.check(arguments, environment);
    if (!asked.sizes()) {
      arguments.addAll(List.of("-b", "1K", "-e", "64M", "-f", "4"));
    }
    if (!asked.backend().isEmpty()) {
      choices(flags, asked, asked.backend());
    }
    List<String> command = new ArrayList<>(perf);
    command.addAll(arguments);
    Duration limit = Duration.ofSeconds(flags.limit);
    try (PerfProcess process = new PerfProcess(command, environment, asked, limit)) {
      return report(flags, arguments, measure(flags, asked, process));
    }
  }

  private static List<SweepChoice> choices(Flags flags, Asked asked, String backend) {
    if (backend.equals("reference") && !asked.collective().equals("all_reduce")) {
      throw new IllegalArgumentException(
          "the reference backend has a choice of algorithms for all_reduce only, not for "
              + asked.collective());
    }
    return flags.choices(backend);
  }

  private Outcome measure(Flags flags, Asked asked, PerfProcess process) throws IOException {
    err.println("sweep: auto ...");
    SweepResult automatic = process.run(SweepChoice.AUTO);
    String backend = asked.backend();
    if (backend.isEmpty()) {
      if (automatic.rounds().isEmpty()) {
        throw new IllegalStateException(
            "nothing could be measured; give --backend to try other choices: "
                + automatic.reason());
      }
      backend = backend(automatic.rounds().getFirst());
    }
    List<SweepChoice> choices = new ArrayList<>(List.of(SweepChoice.AUTO));
    choices.addAll(choices(flags, asked, backend));
    Map<SweepChoice, SweepResult> results =
        new LinkedHashMap<>(Map.of(SweepChoice.AUTO, automatic));
    for (int round = 1; round <= flags.rounds; round++) {
      for (SweepChoice choice : choices) {
        SweepResult before = results.get(choice);
        boolean skip =
            before != null && (round == 1 || before.state() != SweepResult.State.MEASURED);
        if (!skip) {
          err.printf("sweep: %s, round %d of %d ...%n", choice.name(), round, flags.rounds);
          results.merge(choice, process.run(choice), SweepResult::and);
        }
      }
    }
    return new Outcome(
        asked.collective(),
        backend,
        flags.rounds,
        List.copyOf(results.values()),
        backend.equals("nccl") ? chosen(process) : null);
  }

  /** Asks NCCL what it chooses, in a process of its own, since NCCL before 2.29.2 does not say. */
  private SweepResult chosen(PerfProcess process) throws IOException {
    err.println("sweep: auto, to see what NCCL chooses ...");
    return process.run(
        SweepChoice.AUTO, "--show-algorithm", "-n", "1", "-w", "0", "-c", "0", "-K", "0");
  }

  private static String backend(PerfRun measured) {
    return measured.facts().get("backend").startsWith("nccl") ? "nccl" : "reference";
  }

  private int report(Flags flags, List<String> arguments, Outcome outcome) throws IOException {
    SweepReport report = new SweepReport(outcome, String.join(" ", arguments));
    report.print(out);
    if (flags.csv != null) {
      OutputFile.write(flags.csv, report.csv());
    }
    if (flags.json != null) {
      OutputFile.write(flags.json, report.json());
    }
    if (flags.html != null) {
      OutputFile.write(flags.html, report.page().html());
    }
    if (!outcome.measuredAnything()) {
      err.println("sweep: nothing could be measured");
      return Commands.FAILED;
    }
    return outcome.wrong() ? Commands.WRONG_DATA : Commands.OK;
  }
}
