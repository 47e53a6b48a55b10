package io.nccl4j.tools.evidence;

import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
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

  private static final int TAIL_LINES = 40;
  private static final int TAIL_CHARACTERS = 4000;
  private static final int SIGNALLED = 128;
  private static final int MAX_OUTPUT_NOTES = 20;

  /** The suffix of a JVM crash file, after the process id. */
  private static final String CRASH = ".hs_err";

  /** The line of a crash file before the one that names the function. */
  private static final String CRASHED_IN = "# Problematic frame:";

  private final Path work;
  private final Path log;
  private final Set<Process> alive = ConcurrentHashMap.newKeySet();
  private boolean closed;

  /**
   * Creates a runner.
   *
   * @param work the directory for the output of running processes
   * @param log the file to which all output is appended
   */
  StepRunner(Path work, Path log) {
    this.work = work;
    this.log = log;
    // Kills the child processes if this process is stopped.
    Runtime.getRuntime().addShutdownHook(new Thread(this::close, "steps-end"));
  }

  /** A running process. */
  private record Running(Step.Command command, Process process, Path output) {
    boolean failed() {
      return !process.isAlive() && process.exitValue() != 0;
    }

    /** Describes its crash; empty if it did not crash. */
    String crash() throws IOException {
      // A JVM that crashes without a core dump exits with status 1, as after a failure.
      Path crashFile = output.resolveSibling(process.pid() + CRASH);
      if (Files.exists(crashFile)) {
        return "crashed" + frame(Files.readAllLines(crashFile, StandardCharsets.ISO_8859_1));
      }
      int signal = process.isAlive() ? 0 : process.exitValue() - SIGNALLED;
      return signal > 0 ? "killed by signal " + signal : "";
    }

    private static String frame(List<String> lines) {
      int at = lines.indexOf(CRASHED_IN) + 1;
      return at > 0 && at < lines.size() ? " in " + lines.get(at).replaceFirst("^# *", "") : "";
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
      running.forEach(one -> kill(one.process()));
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
    while (running.stream().anyMatch(one -> one.process().isAlive())) {
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
      Path report = one.command().report();
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
    Map<String, Long> ends = new LinkedHashMap<>();
    for (Running one : running) {
      ends.put(one.command().label(), Files.size(one.output()));
    }
    List<String> killed = killHung(running);
    List<Report> reports = new ArrayList<>();
    for (Running one : running) {
      reports.add(report(one, killed.contains(one.command().label())));
    }
    Map<String, String> crashes = new LinkedHashMap<>();
    for (Running one : running) {
      boolean killedByUs = killed.contains(one.command().label());
      crashes.put(one.command().label(), killedByUs ? "" : one.crash());
    }
    boolean crashed = crashes.values().stream().anyMatch(crash -> !crash.isEmpty());
    Outcome.Status status =
        crashed ? Outcome.Status.CRASHED : status(running, reports, killed, ending);
    String summary = summary(step, running, reports, killed, crashes, status, ending);
    Map<String, String> tails = new LinkedHashMap<>();
    for (Running one : running) {
      collect(step, one);
      if (status.bad()) {
        tails.put(one.command().label(), tail(one.output(), ends.get(one.command().label())));
      }
    }
    Report whole = merged(running, reports, summary);
    return new Outcome(step, status, whole, seconds, tails);
  }

  /** Kills the processes that still run, after they print their stacks. */
  private static List<String> killHung(List<Running> running) {
    List<Running> hung = running.stream().filter(one -> one.process().isAlive()).toList();
    // Listed now: the descendants of a process are unknown once it has exited.
    List<ProcessHandle> all =
        hung.stream()
            .map(one -> one.process().toHandle())
            .flatMap(process -> Stream.concat(Stream.of(process), process.descendants()))
            .toList();
    if (!all.isEmpty()) {
      printStacks(all);
    }
    hung.forEach(one -> kill(one.process()));
    all.forEach(ProcessHandle::destroyForcibly);
    return hung.stream().map(one -> one.command().label()).toList();
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

  /**
   * Returns the report of a process; if it writes none, one made from its exit status and output.
   */
  private static Report report(Running one, boolean killed) throws IOException {
    Path file = one.command().report();
    if (file != null) {
      return Files.exists(file)
          ? Report.read(file)
          : Report.of(Report.Verdict.FAILED, "exited without a report");
    }
    List<String> lines = text(one.output()).lines().filter(line -> !line.isBlank()).toList();
    List<String> shownLines =
        lines.subList(Math.max(0, lines.size() - MAX_OUTPUT_NOTES), lines.size());
    boolean passed = !killed && one.process().exitValue() == 0;
    return Report.of(passed ? Report.Verdict.PASSED : Report.Verdict.FAILED, "")
        .with(
            passed ? Report.Verdict.PASSED : Report.Verdict.FAILED,
            shownLines.isEmpty() ? "" : shownLines.getLast(),
            shownLines);
  }

  private static Outcome.Status status(
      List<Running> running, List<Report> reports, List<String> killed, Ending ending) {
    if (ending == Ending.DEADLINE || ending == Ending.SILENT) {
      return Outcome.Status.TIMED_OUT;
    }
    List<Report.Verdict> verdicts = reports.stream().map(Report::verdict).toList();
    if (verdicts.contains(Report.Verdict.FAILED)
        || verdicts.contains(Report.Verdict.UNFINISHED)
        || !killed.isEmpty()) {
      return Outcome.Status.FAILED;
    }
    if (verdicts.contains(Report.Verdict.NOT_POSSIBLE)) {
      return Outcome.Status.NOT_POSSIBLE;
    }
    boolean allSucceeded = running.stream().allMatch(one -> one.process().exitValue() == 0);
    return allSucceeded ? Outcome.Status.PASSED : Outcome.Status.FAILED;
  }

  private static String summary(
      Step step,
      List<Running> running,
      List<Report> reports,
      List<String> killed,
      Map<String, String> crashes,
      Outcome.Status status,
      Ending ending) {
    List<String> parts = new ArrayList<>();
    if (status == Outcome.Status.TIMED_OUT) {
      String after =
          ending == Ending.SILENT
              ? step.silence().toSeconds() + " s without progress"
              : step.deadline().toSeconds() + " s";
      parts.add("killed after " + after + ": " + String.join(", ", killed));
    }
    for (int i = 0; i < running.size(); i++) {
      Running one = running.get(i);
      String label = running.size() == 1 ? "" : one.command().label() + ": ";
      String crash = crashes.get(one.command().label());
      if (!crash.isEmpty()) {
        parts.add(label + crash);
      }
      if (killed.contains(one.command().label()) && status != Outcome.Status.TIMED_OUT) {
        parts.add(label + "killed after another process failed");
      }
      Report report = reports.get(i);
      boolean other = one.command().report() == null;
      boolean included = i == 0 || other || report.verdict() != Report.Verdict.PASSED;
      if (!report.summary().isEmpty() && included) {
        parts.add((status.bad() || other ? label : "") + report.summary());
      }
    }
    return String.join("; ", parts);
  }

  /** Returns the first process's report with the notes that the others add. */
  private static Report merged(List<Running> running, List<Report> reports, String summary) {
    List<String> more = new ArrayList<>();
    for (int i = 1; i < reports.size(); i++) {
      String label = running.get(i).command().label();
      Set<String> known = Set.copyOf(reports.getFirst().notes());
      reports.get(i).notes().stream()
          .filter(note -> !known.contains(note))
          .forEach(note -> more.add(label + ": " + note));
    }
    return reports.getFirst().with(reports.getFirst().verdict(), summary, more);
  }

  private void collect(Step step, Running one) throws IOException {
    String head = "==== %s, %s: %s%n".formatted(step.name(), one.command().label(), status(one));
    Files.writeString(log, head, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    append(one.output());
    try (DirectoryStream<Path> crashes = Files.newDirectoryStream(work, "*" + CRASH)) {
      for (Path crash : crashes) {
        append(crash);
        Files.delete(crash);
      }
    }
  }

  /**
   * Returns the JVM flag that writes crash files into a directory, where a runner looks for them.
   */
  static String crashFile(Path folder) {
    // %p is the process id: several processes may crash at once.
    return "-XX:ErrorFile=" + folder.resolve("%p" + CRASH);
  }

  private void append(Path file) throws IOException {
    Files.write(
        log, Files.readAllBytes(file), StandardOpenOption.CREATE, StandardOpenOption.APPEND);
  }

  private static String status(Running one) {
    return one.process().isAlive() ? "still running" : "exit status " + one.process().exitValue();
  }

  private static String text(Path output) throws IOException {
    return text(Files.readAllBytes(output));
  }

  /** Decodes program output, with control characters replaced. */
  private static String text(byte[] output) {
    return new String(output, StandardCharsets.UTF_8).replaceAll("[\\p{Cc}&&[^\\n\\r\\t]]", "?");
  }

  /**
   * Returns the end of a process's output, without the stacks that it printed before it was killed.
   */
  private static String tail(Path output, long end) throws IOException {
    byte[] bytes = Arrays.copyOf(Files.readAllBytes(output), Math.toIntExact(end));
    List<String> lines = text(bytes).lines().toList();
    String tail =
        lines.stream()
            .skip(Math.max(0, lines.size() - TAIL_LINES))
            .collect(Collectors.joining("\n"));
    return tail.substring(Math.max(0, tail.length() - TAIL_CHARACTERS));
  }

  /** Kills a process and its descendants. */
  static void kill(Process process) {
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
