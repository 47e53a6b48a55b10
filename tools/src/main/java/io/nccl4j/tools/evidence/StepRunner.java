package io.nccl4j.tools.evidence;

import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * Runs steps one after the other. A step cannot end or block the run: a process that hangs is
 * killed at its deadline with all its descendants, and a crash is reported.
 */
final class StepRunner implements AutoCloseable {
  /** The time that the processes of a step have left after one of them fails. */
  private static final Duration GRACE = Duration.ofSeconds(10);

  private static final Duration KILL_TIMEOUT = Duration.ofSeconds(5);

  /** The time that a JVM needs to print its thread stacks. */
  private static final Duration STACK_DUMP_TIME = Duration.ofSeconds(2);

  /** Enough for the largest table of the bandwidth command. */
  private static final int MAX_OUTPUT_LINES = 60;

  private static final int MAX_OUTPUT_CHARACTERS = 10_000;
  private static final int SIGNALLED = 128;

  /** The suffix of a JVM crash file, after the process id. */
  private static final String CRASH = ".hs_err";

  /** The line of a crash file before the one that names the function. */
  private static final String CRASHED_IN = "# Problematic frame:";

  /** The result of the bandwidth command, whose last line names only the collective. */
  private static final Pattern BANDWIDTH =
      Pattern.compile("# ((Out of bounds values|Avg bus bandwidth) +: .*)");

  private final Path work;
  private final OutputStream log;
  private final Set<Process> alive = ConcurrentHashMap.newKeySet();
  private boolean closed;

  /**
   * Creates a runner.
   *
   * @param work the directory for the output of running processes
   * @param log receives all output; the caller closes it
   */
  StepRunner(Path work, OutputStream log) {
    this.work = work;
    this.log = log;
  }

  /** Creates a runner in a process of a step, whose output the step's runner logs. */
  static StepRunner inside(Path work) {
    StepRunner runner = new StepRunner(work, System.out);
    // Kills the child processes if this process is stopped.
    Runtime.getRuntime().addShutdownHook(new Thread(runner::close, "steps-end"));
    return runner;
  }

  /** A process of a step. */
  private static final class Running {
    private final Step.Command command;
    private final Process process;
    private final Path output;

    /** The size of the output before the stacks that a hung process prints. */
    private long outputEnd;

    private boolean killed;
    private Report report;
    private String crash = "";

    Running(Step.Command command, Process process, Path output) {
      this.command = command;
      this.process = process;
      this.output = output;
    }

    boolean failed() {
      return !process.isAlive() && process.exitValue() != 0;
    }

    /** Reads what the process left when it ended or was killed. */
    void read() throws IOException {
      crash = killed ? "" : crash();
      Path file = command.report();
      if (file == null) {
        boolean passed = !killed && process.exitValue() == 0;
        report =
            Report.of(
                passed ? Report.Verdict.PASSED : Report.Verdict.FAILED,
                result(text(Files.readAllBytes(output)), passed));
      } else {
        report =
            Files.exists(file)
                ? Report.read(file)
                : Report.of(Report.Verdict.FAILED, "exited without a report");
      }
    }

    private static String result(String output, boolean passed) {
      String bandwidth =
          BANDWIDTH
              .matcher(output)
              .results()
              .map(line -> line.group(1).strip().replaceAll(" +", " "))
              .collect(Collectors.joining("; "));
      return passed && !bandwidth.isEmpty()
          ? bandwidth
          : output.lines().filter(line -> !line.isBlank()).reduce("", (_, last) -> last);
    }

    /** Describes its crash; empty if it did not crash. */
    private String crash() throws IOException {
      // A JVM that crashes without a core dump exits with status 1, as after a failure.
      Path crashFile = output.resolveSibling(process.pid() + CRASH);
      if (Files.exists(crashFile)) {
        List<String> lines = Files.readAllLines(crashFile, StandardCharsets.ISO_8859_1);
        int at = lines.indexOf(CRASHED_IN) + 1;
        boolean named = at > 0 && at < lines.size();
        return "crashed" + (named ? " in " + lines.get(at).replaceFirst("^# *", "") : "");
      }
      int signal = process.isAlive() ? 0 : process.exitValue() - SIGNALLED;
      return signal > 0 ? "killed by signal " + signal : "";
    }

    /** Returns the end of its output, without the stacks that it printed before it was killed. */
    String endOfOutput() throws IOException {
      byte[] bytes = Arrays.copyOf(Files.readAllBytes(output), Math.toIntExact(outputEnd));
      List<String> lines = text(bytes).lines().toList();
      String end =
          lines.stream()
              .skip(Math.max(0, lines.size() - MAX_OUTPUT_LINES))
              .collect(Collectors.joining("\n"));
      return end.substring(Math.max(0, end.length() - MAX_OUTPUT_CHARACTERS));
    }
  }

  /** Why the wait for a step's processes ended. */
  private enum Ending {
    ALL_EXITED,
    PEER_FAILED,
    DEADLINE,
    SILENT
  }

  /** Runs a step and returns its outcome, which is also printed. */
  Outcome run(Step step, PrintStream out) {
    out.printf("%-26s ", step.name());
    out.flush();
    Outcome outcome = run(step);
    out.printf(
        Locale.ROOT,
        "%s, %.1f s: %s%n",
        outcome.status().label(),
        outcome.seconds(),
        outcome.report().summary());
    return outcome;
  }

  /** Runs a step and returns its outcome. */
  Outcome run(Step step) {
    if (step.impossible() != null) {
      return Outcome.notPossible(step, step.impossible());
    }
    if (step.deadline().toSeconds() < 1) {
      return Outcome.withoutResult(step, Outcome.Status.NOT_RUN, "no time was left");
    }
    long start = System.nanoTime();
    List<Running> running = new ArrayList<>();
    try {
      for (Step.Command command : step.commands()) {
        running.add(start(step, command));
      }
      Ending ending = await(step, running, start + step.deadline().toNanos());
      return outcome(step, running, ending, (System.nanoTime() - start) / 1e9);
    } catch (IOException e) {
      return new Outcome(
          step,
          Outcome.Status.FAILED,
          Report.of(Report.Verdict.FAILED, "could not be run: " + e.getMessage()),
          (System.nanoTime() - start) / 1e9,
          Map.of());
    } finally {
      running.forEach(one -> kill(one.process));
      alive.clear();
    }
  }

  private Running start(Step step, Step.Command command) throws IOException {
    Path output = work.resolve(step.name() + "." + command.label().replace(' ', '-') + ".out");
    List<String> words = new ArrayList<>(command.words());
    if (command.report() != null) {
      words.addAll(List.of("--deadline", "" + step.deadline().toSeconds()));
    }
    ProcessBuilder builder =
        new ProcessBuilder(words)
            .redirectErrorStream(true)
            .redirectInput(ProcessBuilder.Redirect.from(Path.of("/dev/null").toFile()))
            .redirectOutput(output.toFile());
    builder.environment().putAll(command.environment());
    return new Running(command, start(builder), output);
  }

  private synchronized Process start(ProcessBuilder builder) throws IOException {
    if (closed) {
      throw new IllegalStateException("the runner is closed and cannot start processes");
    }
    Process process = builder.start();
    alive.add(process);
    return process;
  }

  private static Ending await(Step step, List<Running> running, long deadline) throws IOException {
    long grace = Long.MAX_VALUE;
    Instant start = Instant.now();
    while (running.stream().anyMatch(one -> one.process.isAlive())) {
      long now = System.nanoTime();
      if (now - deadline >= 0) {
        return Ending.DEADLINE;
      }
      if (step.silence() != null
          && lastReport(running, start).plus(step.silence()).isBefore(Instant.now())) {
        return Ending.SILENT;
      }
      if (grace == Long.MAX_VALUE && running.stream().anyMatch(Running::failed)) {
        grace = now + GRACE.toNanos();
      }
      if (now >= grace) {
        return Ending.PEER_FAILED;
      }
      pause();
    }
    return Ending.ALL_EXITED;
  }

  /** Returns when a process of a step last wrote its report, or the start if none did. */
  private static Instant lastReport(List<Running> running, Instant start) throws IOException {
    Instant last = start;
    for (Running one : running) {
      Path report = one.command.report();
      if (report != null && Files.exists(report)) {
        Instant written = Files.getLastModifiedTime(report).toInstant();
        last = written.isAfter(last) ? written : last;
      }
    }
    return last;
  }

  private static void pause() {
    try {
      Thread.sleep(20);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new IllegalStateException("interrupted while a step was running", e);
    }
  }

  private Outcome outcome(Step step, List<Running> running, Ending ending, double seconds)
      throws IOException {
    for (Running one : running) {
      one.outputEnd = Files.size(one.output);
    }
    killHung(running);
    for (Running one : running) {
      one.read();
    }
    Outcome.Status status = status(running, ending);
    Map<String, String> output = new LinkedHashMap<>();
    for (Running one : running) {
      if (status.bad() || one.command.report() == null) {
        output.put(one.command.label(), one.endOfOutput());
      }
      writeLog(step, one);
    }
    Report report = merged(running, summary(step, running, status, ending));
    return new Outcome(step, status, report, seconds, output);
  }

  /** Kills the processes that still run, after they print their stacks. */
  private static void killHung(List<Running> running) {
    List<Running> hung = running.stream().filter(one -> one.process.isAlive()).toList();
    // Listed now: the descendants of a process are unknown once it has exited.
    List<ProcessHandle> all =
        hung.stream()
            .map(one -> one.process.toHandle())
            .flatMap(process -> Stream.concat(Stream.of(process), process.descendants()))
            .toList();
    if (!all.isEmpty()) {
      printStacks(all);
    }
    for (Running one : hung) {
      kill(one.process);
      one.killed = true;
    }
    all.forEach(ProcessHandle::destroyForcibly);
  }

  /** Sends SIGQUIT, on which the JVM and our Python program print their stacks. */
  private static void printStacks(List<ProcessHandle> hung) {
    List<String> command = new ArrayList<>(List.of("/bin/sh", "-c", "kill -QUIT \"$@\"", "sh"));
    hung.forEach(process -> command.add("" + process.pid()));
    try {
      Process signaller =
          new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.DISCARD).start();
      boolean sent = signaller.waitFor(KILL_TIMEOUT.toMillis(), TimeUnit.MILLISECONDS);
      if (sent) {
        Thread.sleep(STACK_DUMP_TIME);
      }
    } catch (IOException e) {
      System.err.println("cannot print the stacks of hung processes: " + e.getMessage());
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  private static Outcome.Status status(List<Running> running, Ending ending) {
    if (running.stream().anyMatch(one -> !one.crash.isEmpty())) {
      return Outcome.Status.CRASHED;
    }
    if (ending == Ending.DEADLINE || ending == Ending.SILENT) {
      return Outcome.Status.TIMED_OUT;
    }
    List<Report.Verdict> verdicts = running.stream().map(one -> one.report.verdict()).toList();
    if (verdicts.contains(Report.Verdict.FAILED)
        || verdicts.contains(Report.Verdict.UNFINISHED)
        || running.stream().anyMatch(one -> one.killed)) {
      return Outcome.Status.FAILED;
    }
    if (verdicts.contains(Report.Verdict.NOT_POSSIBLE)) {
      return Outcome.Status.NOT_POSSIBLE;
    }
    return running.stream().anyMatch(Running::failed)
        ? Outcome.Status.FAILED
        : Outcome.Status.PASSED;
  }

  private static String summary(
      Step step, List<Running> running, Outcome.Status status, Ending ending) {
    List<String> parts = new ArrayList<>();
    if (status == Outcome.Status.TIMED_OUT) {
      String after =
          ending == Ending.SILENT
              ? step.silence().toSeconds() + " s without progress"
              : step.deadline().toSeconds() + " s";
      parts.add(
          running.stream()
              .filter(one -> one.killed)
              .map(one -> one.command.label())
              .collect(Collectors.joining(", ", "killed after " + after + ": ", "")));
    }
    for (Running one : running) {
      String label = running.size() == 1 ? "" : one.command.label() + ": ";
      if (!one.crash.isEmpty()) {
        parts.add(label + one.crash);
      }
      if (one.killed && status != Outcome.Status.TIMED_OUT) {
        parts.add(label + "killed after another process failed");
      }
      boolean other = one.command.report() == null;
      boolean included =
          one == running.getFirst() || other || one.report.verdict() != Report.Verdict.PASSED;
      if (!one.report.summary().isEmpty() && included) {
        parts.add((status.bad() || other ? label : "") + one.report.summary());
      }
    }
    return String.join("; ", parts);
  }

  /** Returns the first process's report with the notes that the others add. */
  private static Report merged(List<Running> running, String summary) {
    Report first = running.getFirst().report;
    List<String> notes = new ArrayList<>(first.notes());
    for (Running one : running.subList(1, running.size())) {
      one.report.notes().stream()
          .filter(note -> !first.notes().contains(note))
          .forEach(note -> notes.add(one.command.label() + ": " + note));
    }
    return new Report(first.verdict(), summary, first.facts(), first.tables(), notes);
  }

  private void writeLog(Step step, Running one) throws IOException {
    String status =
        one.process.isAlive() ? "still running" : "exit status " + one.process.exitValue();
    String head = "==== %s, %s: %s%n".formatted(step.name(), one.command.label(), status);
    log.write(head.getBytes(StandardCharsets.UTF_8));
    // Copied without decoding: programs may print anything, not only UTF-8.
    Files.copy(one.output, log);
    try (DirectoryStream<Path> crashes = Files.newDirectoryStream(work, "*" + CRASH)) {
      for (Path crash : crashes) {
        Files.copy(crash, log);
        Files.delete(crash);
      }
    }
    log.flush();
  }

  /**
   * Returns the JVM flag that writes crash files into a directory, where a runner looks for them.
   */
  static String crashFile(Path folder) {
    // %p is the process id: several processes may crash at once.
    return "-XX:ErrorFile=" + folder.resolve("%p" + CRASH);
  }

  /** Decodes program output, with control characters replaced. */
  private static String text(byte[] output) {
    return new String(output, StandardCharsets.UTF_8).replaceAll("[\\p{Cc}&&[^\\n\\r\\t]]", "?");
  }

  /** Kills a process and its descendants. */
  private static void kill(Process process) {
    // Descendants first: they are unknown once their parent has exited.
    Stream.concat(process.descendants().toList().stream(), Stream.of(process.toHandle()))
        .forEach(ProcessHandle::destroyForcibly);
    try {
      // A process that hangs in the kernel cannot be killed; it is abandoned.
      boolean exited = process.waitFor(KILL_TIMEOUT.toMillis(), TimeUnit.MILLISECONDS);
      if (!exited) {
        System.err.println("process " + process.pid() + " cannot be killed");
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  /** Returns whether this was closed; steps may then have failed because of that. */
  synchronized boolean closed() {
    return closed;
  }

  /** Kills the processes that still run; none can be started after this. Idempotent. */
  @Override
  public void close() {
    synchronized (this) {
      closed = true;
    }
    alive.forEach(StepRunner::kill);
  }
}
