package io.nccl4j.tools.evidence;

import io.nccl4j.rendezvous.LaunchEnvironment;
import io.nccl4j.tools.cli.Commands;
import io.nccl4j.tools.cli.JsonTree;
import io.nccl4j.tools.cli.OutputFile;
import io.nccl4j.tools.cli.Within;
import java.io.IOException;
import java.io.InputStream;
import java.io.PrintStream;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Clock;
import java.time.Duration;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.stream.Collectors;
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
    customSynopsis = "scripts/nccl4j evidence [--quick] [--steps NAME,...] [--limit SECONDS] OUT",
    header = "Tests and measures nccl4j on the GPUs of this machine.",
    description = {
      "Writes OUT/evidence.json, OUT/evidence.md and OUT/evidence.log, the output of all programs.",
      "Creates OUT if it does not exist. A run of all steps replaces the evidence in OUT; a run",
      "with --steps replaces only those steps; device, number of devices and NCCL must be the same."
    },
    footer = {
      "",
      "A step that fails, crashes or exceeds its deadline is reported, and the next one runs. The page",
      "is written before and after each step: a step that it shows as RUNNING did not end.",
      "Started by a launcher (mpirun, torchrun --no-python, srun), also on several hosts, it runs",
      "device and bandwidth-launched, and rank 0 writes OUT: see launch/README.md.",
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

  private static final int LIBRARY_NAMES = 4;

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
        Stream.concat(Arrays.stream(usage.footer()), stepsByGroup()).toArray(String[]::new));
    return line.execute(args);
  }

  private static Stream<String> stepsByGroup() {
    Stream<String> groups =
        EvidencePlan.GROUPS.stream()
            .map(
                group ->
                    EvidencePlan.NAMES.stream()
                        .filter(name -> name.startsWith(group))
                        .collect(Collectors.joining(" ", "  %-12s ".formatted(group), "")));
    return Stream.concat(Stream.of("", "Steps in order, by group:"), groups);
  }

  private void check() {
    for (String step : steps) {
      if (!EvidencePlan.knows(step)) {
        List<String> names =
            Stream.concat(EvidencePlan.GROUPS.stream(), EvidencePlan.NAMES.stream())
                .distinct()
                .toList();
        throw new IllegalArgumentException(
            "--steps: unknown step " + step + "; known: " + String.join(", ", names));
      }
    }
  }

  private int collect() throws IOException {
    check();
    LaunchEnvironment launch = launch();
    if (launch.rank() > 0) {
      return follow(launch);
    }
    Run.Earlier earlier;
    try {
      earlier = prepareFolder(launch);
    } catch (IllegalArgumentException | IOException e) {
      if (launch.size() > 1) {
        // Without this rank, the others would wait until their deadline.
        follow(launch);
      }
      throw e;
    }
    Path work = Files.createTempDirectory("nccl4j-evidence");
    try (StepRunner runner = new StepRunner(work, folder.resolve("evidence.log"))) {
      extract(work.resolve(Interop.SCRIPT));
      return runAll(runner, new EvidencePlan(work, quick, environment), launch, work, earlier);
    } finally {
      clear(work, err);
    }
  }

  /** Creates OUT if it does not exist, and returns the steps of an earlier run to keep. */
  private Run.Earlier prepareFolder(LaunchEnvironment launch) throws IOException {
    if (Files.exists(folder) && !Files.isDirectory(folder)) {
      throw new IllegalArgumentException("OUT is " + folder + ", which is not a directory");
    }
    try {
      Files.createDirectories(folder);
    } catch (IOException e) {
      throw new IllegalArgumentException("OUT is " + folder + ", which cannot be created: " + e, e);
    }
    if (!steps.isEmpty() || launch.size() > 1) {
      return earlier();
    }
    for (String name : List.of("evidence.json", "evidence.md", "evidence.log")) {
      Files.deleteIfExists(folder.resolve(name));
    }
    return Run.Earlier.NONE;
  }

  private LaunchEnvironment launch() {
    LaunchEnvironment launch = LaunchEnvironment.from(environment);
    if (launch.size() > 1 && !EvidencePlan.selects(steps, EvidencePlan.LAUNCHED)) {
      throw new IllegalArgumentException(
          "a run started by a launcher has no step but " + EvidencePlan.LAUNCHED);
    }
    if (launch.size() == 1 && steps.contains(EvidencePlan.LAUNCHED)) {
      throw new IllegalArgumentException(
          EvidencePlan.LAUNCHED + " needs a launcher, such as mpirun");
    }
    return launch;
  }

  private Run.Earlier earlier() throws IOException {
    Path json = folder.resolve("evidence.json");
    return Files.exists(json) ? Run.Earlier.read(json) : Run.Earlier.NONE;
  }

  /** Runs the launched step on a rank that writes no results. */
  private int follow(LaunchEnvironment launch) throws IOException {
    Path work = Files.createTempDirectory("nccl4j-evidence");
    try (StepRunner runner = new StepRunner(work, work.resolve("evidence.log"))) {
      EvidencePlan plan = new EvidencePlan(work, quick, environment);
      Outcome device = runner.run(limited(plan.first()));
      Outcome outcome = runner.run(limited(plan.launched(Machine.of(device), launch)));
      if (outcome.status() != Outcome.Status.PASSED) {
        err.println("evidence: rank " + launch.rank() + ": " + outcome.report().summary());
      }
      return outcome.status().bad() ? Commands.FAILED : Commands.OK;
    } finally {
      clear(work, err);
    }
  }

  /** Returns a step with at most the time that {@code --limit} leaves. */
  private Step limited(Step step) {
    if (limit == null) {
      return step;
    }
    Duration left = Duration.ofNanos(start + limit * 1_000_000_000L - System.nanoTime());
    return left.compareTo(step.deadline()) < 0 ? step.withDeadline(left) : step;
  }

  /**
   * Deletes the working directory, unless a process that could not be killed still writes there.
   */
  static void clear(Path work, PrintStream err) {
    try {
      OutputFile.deleteFolder(work);
    } catch (IOException e) {
      err.println(work + " cannot be deleted: " + e);
    }
  }

  private static void extract(Path script) throws IOException {
    try (InputStream source = EvidenceCommand.class.getResourceAsStream(Interop.SCRIPT)) {
      Files.copy(Objects.requireNonNull(source, Interop.SCRIPT), script);
    }
  }

  private int runAll(
      StepRunner runner,
      EvidencePlan plan,
      LaunchEnvironment launch,
      Path work,
      Run.Earlier earlier)
      throws IOException {
    String date = date();
    String build = environment.getOrDefault("NCCL4J_BUILD", "of an unknown commit");
    List<Run.Recorded> recorded = new ArrayList<>();
    if (earlier.steps().isEmpty()) {
      // With earlier steps, the page stays as it is until the machine is known to be the same.
      recorded.add(running(plan.first(), new Run.RunSource(date, build, "")));
      write(new Run(recorded.getFirst().source(), quick, Machine.NONE, recorded), work);
      recorded.clear();
    }
    Outcome device = runner.run(limited(plan.first()), out);
    if (runner.closed()) {
      return Commands.FAILED;
    }
    Machine machine = Machine.of(device);
    Run.RunSource source = new Run.RunSource(date, build, Machine.versions(device));
    recorded.add(new Run.Recorded(device, source));
    String difference = earlier.difference(new Run(source, quick, machine, recorded));
    if (!difference.isEmpty()) {
      if (launch.size() > 1) {
        // Without this rank, the others would wait until their deadline.
        runner.run(limited(plan.launched(machine, launch)), out);
      }
      throw new IllegalStateException(difference);
    }
    List<Step> rest =
        launch.size() > 1
            ? List.of(plan.launched(machine, launch))
            : plan.rest(machine).stream()
                .filter(step -> EvidencePlan.selects(steps, step.name()))
                .toList();
    Duration needed =
        rest.stream().map(Step::deadline).reduce(plan.first().deadline(), Duration::plus);
    Duration whole = needed.compareTo(LIMIT) > 0 ? needed : LIMIT;
    long end = start + (limit == null ? whole : Duration.ofSeconds(limit)).toNanos();
    if (machine.usable()) {
      out.printf(
          "remaining steps: %d, at most %d s%n",
          rest.size(), Duration.ofNanos(end - System.nanoTime()).toSeconds());
    } else {
      out.println(
          "no usable GPU found; the other steps are skipped; scripts/nccl4j doctor reports why");
    }
    // Written before and after each step, to keep the results if the machine crashes.
    Run run = new Run(source, quick, machine, recorded).mergedWith(earlier.steps());
    write(run, work);
    Duration later = needed.minus(plan.first().deadline());
    for (Step step : rest) {
      later = later.minus(step.deadline());
      // All the remaining time, except the deadlines of the steps that follow.
      Duration spare = Duration.ofNanos(end - System.nanoTime()).minus(later);
      Step timed = spare.compareTo(step.deadline()) > 0 ? step.withDeadline(spare) : limited(step);
      recorded.add(running(timed, source));
      if (timed.impossible() == null) {
        write(new Run(source, quick, machine, recorded).mergedWith(earlier.steps()), work);
      }
      Outcome outcome = runner.run(timed, out);
      if (runner.closed()) {
        // This process is being stopped, which killed the step: the page shows it as running.
        return Commands.FAILED;
      }
      recorded.set(recorded.size() - 1, new Run.Recorded(outcome, source));
      run = new Run(source, quick, machine, recorded).mergedWith(earlier.steps());
      write(run, work);
    }
    out.println(Page.verdict(run.outcomes()));
    out.println(folder.resolve("evidence.md"));
    boolean failed = recorded.stream().anyMatch(step -> step.outcome().status().bad());
    return failed ? Commands.FAILED : Commands.OK;
  }

  private static Run.Recorded running(Step step, Run.RunSource source) {
    String since =
        "since " + date() + "; if this is the last state of the page, it was ended from outside";
    return new Run.Recorded(Outcome.withoutResult(step, Outcome.Status.RUNNING, since), source);
  }

  /** Returns the current time for a page. */
  static String date() {
    return DateTimeFormatter.ofPattern("yyyy-MM-dd HH:mm:ss 'UTC'")
        .format(Clock.systemUTC().instant().atOffset(ZoneOffset.UTC));
  }

  private void write(Run run, Path work) throws IOException {
    Redaction redaction = redaction(work, run.machine());
    // The page first: a run that is ended between the two leaves a page that is not behind.
    OutputFile.replace(folder.resolve("evidence.md"), redaction.apply(Page.of(run)));
    OutputFile.replace(
        folder.resolve("evidence.json"), redaction.apply(JsonTree.text(run.tree()) + "\n"));
    try (DirectoryStream<Path> charts = Files.newDirectoryStream(work, "*.html")) {
      for (Path chart : charts) {
        Path name = Objects.requireNonNull(chart.getFileName());
        OutputFile.replace(folder.resolve(name), redaction.apply(Files.readString(chart)));
      }
    }
  }

  private Redaction redaction(Path work, Machine machine) {
    Redaction redaction =
        new Redaction().folder(work, "$WORK").folder(folder.toAbsolutePath(), "$OUT");
    String home = environment.get("NCCL4J_HOME");
    if (home != null) {
      redaction.folder(Path.of(home), "$BUNDLE");
    }
    String tests = environment.get(NcclTests.VARIABLE);
    if (tests != null && !tests.isBlank()) {
      redaction.folder(Path.of(tests), "$" + NcclTests.VARIABLE);
    }
    if (machine.usable()) {
      for (String library : List.of(machine.ncclLibrary(), machine.cudartLibrary())) {
        redaction.folder(outer(Path.of(library)), "...");
      }
    }
    return redaction
        .folder(Path.of(System.getProperty("java.home")), "$JAVA_HOME")
        .folder(Path.of("").toAbsolutePath(), "$PWD")
        .folder(Path.of(System.getProperty("user.home")), "~")
        .word(DeviceReport.hostName(), "$HOSTNAME");
  }

  /** Returns a library's path without its last names, which show how it was installed. */
  private static Path outer(Path library) {
    Path outer = library.toAbsolutePath();
    for (int i = 0; i < LIBRARY_NAMES && outer.getNameCount() > 0; i++) {
      outer = outer.getParent();
    }
    return outer;
  }
}
