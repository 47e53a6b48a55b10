package io.nccl4j.examples.evidence;

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
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Parameters;

/** The command: runs all steps and writes what they saw. */
@Command(
    name = "gpu-evidence",
    sortOptions = false,
    usageHelpWidth = 100,
    customSynopsis = "scripts/gpu-evidence [--quick] [--steps NAME,...] [--limit SECONDS] OUT",
    header = "Shows what nccl4j does on the GPU of this machine.",
    description = {
      "Writes OUT/evidence.json, OUT/evidence.md and, with all output of all programs, OUT/evidence.log.",
      "OUT is made if it is not there; evidence of an earlier run in it is replaced."
    },
    footer = {
      "",
      "Each step is a process with a deadline; one that fails, crashes or hangs is reported, and the rest goes on.",
      "The libraries are found as always (NCCL4J_NCCL_LIBRARY and NCCL4J_CUDART_LIBRARY name others).",
      "NCCL_TESTS_DIR names a folder with the programs of nccl-tests, or its checkout, to run beside ours.",
      "Exit status: 0 every step passed or is not possible here, 1 a step failed, 2 bad arguments."
    })
public final class Evidence {
  private static final int FAILED = 1;
  private static final int BAD_ARGUMENTS = 2;
  private static final int LIMIT_SECONDS = 470;
  private static final int TELLING_NAMES = 4;

  @Parameters(index = "0", paramLabel = "OUT", description = "the folder for the results")
  Path folder;

  @Option(
      names = "--quick",
      description =
          "tiny sizes and few repetitions: shows that the command works, measures nothing")
  boolean quick;

  @Option(
      names = "--steps",
      split = ",",
      paramLabel = "NAME",
      description = "only these steps (and device, which the others need); default all")
  List<String> steps = List.of();

  @Option(
      names = "--limit",
      paramLabel = "SECONDS",
      description = "the most that all steps together may take; default ${DEFAULT-VALUE}")
  int limit = LIMIT_SECONDS;

  @Option(
      names = {"-h", "--help"},
      usageHelp = true,
      description = "show this")
  boolean help;

  private final PrintStream out;
  private final PrintStream err;
  private final Map<String, String> environment;

  Evidence(PrintStream out, PrintStream err, Map<String, String> environment) {
    this.out = out;
    this.err = err;
    this.environment = environment;
  }

  /** Runs the command and ends the process with its status. */
  public static void main(String[] args) {
    System.exit(new Evidence(System.out, System.err, System.getenv()).run(args));
  }

  /** Runs the command and returns its exit status. */
  int run(String... args) {
    CommandLine commandLine = new CommandLine(this);
    try {
      commandLine.parseArgs(args);
      if (help) {
        commandLine.usage(out);
        return 0;
      }
      check(commandLine);
      return collect(commandLine);
    } catch (ParameterException e) {
      err.println("gpu-evidence: " + e.getMessage());
      return BAD_ARGUMENTS;
    } catch (IOException e) {
      err.println("gpu-evidence: " + e);
      return FAILED;
    }
  }

  private void check(CommandLine commandLine) {
    for (String step : steps) {
      if (!Plan.NAMES.contains(step)) {
        throw new ParameterException(
            commandLine, "--steps has " + step + "; there are " + String.join(", ", Plan.NAMES));
      }
    }
    if (limit < 1) {
      throw new ParameterException(
          commandLine, "--limit is " + limit + "; it must be 1 second or more");
    }
    if (Files.exists(folder) && !Files.isDirectory(folder)) {
      throw new ParameterException(commandLine, "OUT is " + folder + ", which is no folder");
    }
  }

  private int collect(CommandLine commandLine) throws IOException {
    try {
      Files.createDirectories(folder);
    } catch (IOException e) {
      throw new ParameterException(
          commandLine, "OUT is " + folder + ", which cannot be made: " + e, e);
    }
    for (String name : List.of("evidence.json", "evidence.md", "evidence.log")) {
      Files.deleteIfExists(folder.resolve(name));
    }
    Path work = Files.createTempDirectory("nccl4j-evidence");
    try (StepRunner runner = new StepRunner(work, folder.resolve("evidence.log"))) {
      extract(work.resolve(Interop.SCRIPT));
      Run run = runAll(runner, new Plan(work, quick, environment), work);
      out.println(Page.verdict(run.outcomes()));
      out.println(folder.resolve("evidence.md"));
      return run.passed() ? 0 : FAILED;
    } finally {
      clear(work);
    }
  }

  /** What could not be killed may still write there; the results are elsewhere. */
  private void clear(Path work) {
    try {
      delete(work);
    } catch (IOException e) {
      err.println("gpu-evidence: " + work + " is left behind: " + e);
    }
  }

  private static void extract(Path script) throws IOException {
    try (InputStream source = Evidence.class.getResourceAsStream(Interop.SCRIPT)) {
      Files.copy(Objects.requireNonNull(source, Interop.SCRIPT), script);
    }
  }

  private Run runAll(StepRunner runner, Plan plan, Path work) throws IOException {
    long end = System.nanoTime() + Duration.ofSeconds(limit).toNanos();
    String date =
        DateTimeFormatter.ofPattern("yyyy-MM-dd HH:mm 'UTC'")
            .format(Clock.systemUTC().instant().atOffset(ZoneOffset.UTC));
    String build = environment.getOrDefault("NCCL4J_BUILD", "of an unknown commit");
    List<Outcome> outcomes = new ArrayList<>();
    outcomes.add(run(runner, plan.first(), end));
    Machine machine = Machine.of(outcomes.getFirst());
    List<Step> rest =
        plan.rest(machine).stream()
            .filter(step -> steps.isEmpty() || steps.contains(step.name()))
            .toList();
    for (Step step : rest) {
      outcomes.add(run(runner, step, end));
      // Written after each step, so that even a machine that dies leaves what there was.
      write(new Run(date, build, quick, machine, List.copyOf(outcomes)), work);
    }
    Run run = new Run(date, build, quick, machine, List.copyOf(outcomes));
    write(run, work);
    return run;
  }

  private Outcome run(StepRunner runner, Step step, long end) {
    out.printf("%-24s ", step.name());
    out.flush();
    Outcome outcome = runner.run(step, Duration.ofNanos(end - System.nanoTime()));
    out.printf(
        Locale.ROOT,
        "%s, %.1f s: %s%n",
        outcome.status().label(),
        outcome.seconds(),
        outcome.report().summary());
    return outcome;
  }

  private void write(Run run, Path work) throws IOException {
    Redaction redaction = redaction(work, run.machine());
    Files.writeString(folder.resolve("evidence.json"), redaction.apply(Json.text(run.tree())));
    Files.writeString(folder.resolve("evidence.md"), redaction.apply(Page.of(run)));
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

  /** Returns what is left of a library's path without the end that tells where it came from. */
  private static Path outer(Path library) {
    Path outer = library.toAbsolutePath();
    for (int i = 0; i < TELLING_NAMES && outer.getNameCount() > 0; i++) {
      outer = outer.getParent();
    }
    return outer;
  }

  private static void delete(Path folder) throws IOException {
    try (DirectoryStream<Path> files = Files.newDirectoryStream(folder)) {
      for (Path file : files) {
        if (Files.isDirectory(file)) {
          delete(file);
        } else {
          Files.delete(file);
        }
      }
    }
    Files.delete(folder);
  }
}
