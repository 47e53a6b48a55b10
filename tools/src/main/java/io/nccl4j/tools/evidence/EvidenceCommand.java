package io.nccl4j.tools.evidence;

import io.nccl4j.Backend;
import io.nccl4j.rendezvous.LaunchEnvironment;
import io.nccl4j.tools.cli.Commands;
import io.nccl4j.tools.cli.JsonTree;
import io.nccl4j.tools.cli.OutputFile;
import io.nccl4j.tools.cli.Within;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Clock;
import java.time.Duration;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.stream.Stream;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.UsageMessageSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;

/** The {@code evidence} command: runs the steps and writes their results. */
@Command(
    name = "evidence",
    sortOptions = false,
    usageHelpWidth = 110,
    customSynopsis = "nccl4j evidence [--quick] [--steps NAME,...] [--limit SECONDS] OUT",
    header = "Tests and measures nccl4j on the GPUs of this machine.",
    description = {
      "Writes OUT/evidence.json, OUT/evidence.md and OUT/evidence.log, the output of all programs.",
      "Creates OUT if it does not exist. OUT must not have the evidence of an earlier run."
    },
    footer = {
      "",
      "A step that fails, crashes or exceeds its deadline is reported, and the next one runs. The page",
      "is written before and after each step: a step that it shows as RUNNING did not end.",
      "NCCL4J_NCCL_LIBRARY and NCCL4J_CUDART_LIBRARY select the libraries, as for any program.",
      "NCCL_TESTS_DIR names a directory with the programs of nccl-tests, or its checkout.",
      "Exit status: 0 every step passed or is not possible here, 1 a step failed or had no time,",
      "2 bad arguments."
    })
public final class EvidenceCommand {
  /**
   * Without {@code --limit}, the least time limit of a run; time beyond the sum of the deadlines
   * goes to later steps.
   */
  private static final Duration LIMIT = Duration.ofSeconds(470);

  @Parameters(index = "0", paramLabel = "OUT", description = "the directory for the results")
  Path folder;

  @Option(
      names = "--quick",
      description =
          "tiny sizes and few repetitions: tests the command; the times are not measurements")
  boolean quick;

  @Option(
      names = "--steps",
      split = ",",
      paramLabel = "NAME",
      description =
          "run only these steps or groups (and device, which the others need); default all")
  List<String> steps = List.of();

  @Option(
      names = "--limit",
      paramLabel = "SECONDS",
      description =
          "time limit of all steps together; those without time are not run. A step that hangs until then takes up to 10 s more")
  @Within(least = 1, most = 24 * 60 * 60)
  Integer limit;

  private final long start = System.nanoTime();
  private final PrintStream out;
  private final PrintStream err;
  private final Map<String, String> environment;

  EvidenceCommand(PrintStream out, PrintStream err, Map<String, String> environment) {
    this.out = out;
    this.err = err;
    this.environment = environment;
  }

  /** Runs the command and exits with its status. */
  public static void main(String[] args) {
    Commands.exit((out, err) -> new EvidenceCommand(out, err, System.getenv()).run(args));
  }

  /** Runs the command and returns its exit status. */
  int run(String... args) {
    CommandLine line = Commands.of(this, this::collect, out, err);
    UsageMessageSpec usage = line.getCommandSpec().usageMessage();
    usage.footer(
        Stream.of(
                Arrays.stream(usage.footer()),
                Stream.of("", "Groups: " + String.join(", ", EvidencePlan.GROUPS)),
                Stream.of("Steps, in order:"),
                EvidencePlan.names().stream().map(name -> "  " + name))
            .flatMap(lines -> lines)
            .toArray(String[]::new));
    return line.execute(args);
  }

  private void check() {
    Set<String> known = new LinkedHashSet<>(EvidencePlan.GROUPS);
    known.addAll(EvidencePlan.names());
    for (String step : steps) {
      if (!known.contains(step)) {
        throw new IllegalArgumentException(
            "--steps: unknown step " + step + "; known: " + String.join(", ", known));
      }
    }
    LaunchEnvironment launch = LaunchEnvironment.from(environment);
    if (launch.size() > 1) {
      throw new IllegalArgumentException(
          "this process is one of %d, started by %s, but evidence is one process; nccl4j perf measures all ranks of a launcher"
              .formatted(launch.size(), launch.launcher()));
    }
    if (Files.exists(folder) && !Files.isDirectory(folder)) {
      throw new IllegalArgumentException("OUT is " + folder + ", which is not a directory");
    }
    if (Files.exists(folder.resolve("evidence.json"))) {
      throw new IllegalArgumentException(
          "OUT is " + folder + ", which has the evidence of an earlier run; name another folder");
    }
    try {
      Files.createDirectories(folder);
    } catch (IOException e) {
      throw new IllegalArgumentException("OUT is " + folder + ", which cannot be created: " + e, e);
    }
  }

  private int collect() throws IOException {
    check();
    Path work = Files.createTempDirectory("nccl4j-evidence");
    try (OutputStream log = Files.newOutputStream(folder.resolve("evidence.log"))) {
      StepRunner runner = new StepRunner(work, log);
      Thread atExit =
          new Thread(
              () -> {
                runner.close();
                clear(work);
              },
              "evidence-end");
      Runtime.getRuntime().addShutdownHook(atExit);
      try (runner;
          InputStream script = EvidenceCommand.class.getResourceAsStream(Interop.SCRIPT)) {
        Files.copy(Objects.requireNonNull(script, Interop.SCRIPT), work.resolve(Interop.SCRIPT));
        return runAll(runner, work);
      }
    } finally {
      clear(work);
    }
  }

  /**
   * Deletes the working directory, unless a process that could not be killed still writes there.
   */
  private void clear(Path work) {
    try {
      OutputFile.deleteFolder(work);
    } catch (IOException e) {
      err.println(work + " cannot be deleted: " + e);
    }
  }

  private int runAll(StepRunner runner, Path work) throws IOException {
    String date = date();
    String build =
        environment.getOrDefault("NCCL4J_BUILD", Backend.libraryVersion() + ", commit unknown");
    List<Outcome> outcomes = new ArrayList<>();
    Run unknown = new Run(date, build, quick, Machine.NONE, outcomes);
    Step device = plan(work, Machine.NONE).first();
    Duration first = device.deadline();
    Duration limited = limit == null ? first : least(first, Duration.ofSeconds(limit));
    if (!run(runner, device.withDeadline(limited), unknown)) {
      return Commands.FAILED;
    }
    Machine machine = Machine.of(outcomes.getFirst());
    Run run = new Run(date, build, quick, machine, outcomes);
    List<Step> rest =
        plan(work, machine).rest().stream()
            .filter(step -> EvidencePlan.selects(steps, step.name()))
            .toList();
    Duration later = rest.stream().map(Step::deadline).reduce(Duration.ZERO, Duration::plus);
    Duration all = limit == null ? most(LIMIT, first.plus(later)) : Duration.ofSeconds(limit);
    long end = start + all.toNanos();
    if (machine.usable()) {
      out.printf("remaining steps: %d, at most %d s%n", rest.size(), left(end).toSeconds());
    } else {
      out.println("no usable GPU found; the other steps are skipped; nccl4j doctor reports why");
    }
    write(run);
    for (Step step : rest) {
      later = later.minus(step.deadline());
      // All the remaining time, except the deadlines of the steps that follow.
      Duration left = left(end);
      Duration deadline = most(left.minus(later), least(left, step.deadline()));
      if (!run(runner, step.withDeadline(deadline), run)) {
        return Commands.FAILED;
      }
    }
    out.println(run.verdict());
    out.println(folder.resolve("evidence.md"));
    return run.passed() ? Commands.OK : Commands.FAILED;
  }

  private EvidencePlan plan(Path work, Machine machine) {
    return new EvidencePlan(work, quick, environment, machine);
  }

  private static Duration left(long end) {
    return Duration.ofNanos(end - System.nanoTime());
  }

  private static Duration least(Duration a, Duration b) {
    return a.compareTo(b) < 0 ? a : b;
  }

  private static Duration most(Duration a, Duration b) {
    return a.compareTo(b) > 0 ? a : b;
  }

  /**
   * Runs a step and adds its outcome to a run. Writes the pages before and after, to keep the
   * results if the machine crashes. Returns false if this process is being stopped, which killed
   * the step: the page then shows it as running.
   */
  private boolean run(StepRunner runner, Step step, Run run) throws IOException {
    if (step.impossible() == null) {
      String since =
          "since " + date() + "; if this is the last state of the page, it was ended from outside";
      run.steps().add(Outcome.withoutResult(step, Outcome.Status.RUNNING, since));
      write(run);
      run.steps().removeLast();
    }
    Outcome outcome = runner.run(step, out);
    if (runner.closed()) {
      return false;
    }
    run.steps().add(outcome);
    write(run);
    return true;
  }

  /** Returns the current time for a page. */
  private static String date() {
    return DateTimeFormatter.ofPattern("yyyy-MM-dd HH:mm:ss 'UTC'")
        .format(Clock.systemUTC().instant().atOffset(ZoneOffset.UTC));
  }

  private void write(Run run) throws IOException {
    // The page first: a run that is ended between the two leaves a page that is not behind.
    OutputFile.replace(folder.resolve("evidence.md"), Page.of(run));
    OutputFile.replace(folder.resolve("evidence.json"), JsonTree.text(run.tree()) + "\n");
  }
}
