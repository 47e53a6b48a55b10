package io.nccl4j.tools.perf.sweep;

import io.nccl4j.NcclResult;
import io.nccl4j.tools.cli.OutputFile;
import io.nccl4j.tools.perf.PerfCommand.Asked;
import io.nccl4j.tools.perf.report.PerfRun;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * Measures choices, each in a separate process with a deadline. No process outlives this one: a
 * shutdown hook terminates it and deletes its files, and it exits when its standard input closes.
 */
final class PerfProcess implements AutoCloseable {
  private static final int WRONG_DATA = 3;
  private static final Duration TERMINATION_TIMEOUT = Duration.ofSeconds(5);

  /** Extra time for a command that terminates its own processes at the limit. */
  private static final Duration GRACE = Duration.ofSeconds(20);

  /** Part of NCCL's error for an unavailable choice. */
  private static final String REFUSED = "(" + NcclResult.INVALID_USAGE + ", code ";

  private final List<String> command;
  private final Map<String, String> environment;
  private final Asked asked;
  private final Duration limit;
  private final Path folder;
  private volatile Process running;
  private volatile boolean closing;

  /**
   * Creates a runner, which starts no process yet.
   *
   * @param command the bandwidth command, with all arguments but those of a choice
   * @param environment the environment of each process, without the variables of a choice
   * @param asked the parsed arguments of the command
   * @param limit the time limit of each process
   * @param folder the folder for files, which {@link #close} deletes
   */
  PerfProcess(
      List<String> command,
      Map<String, String> environment,
      Asked asked,
      Duration limit,
      Path folder) {
    this.command = command;
    this.environment = environment;
    this.asked = asked;
    this.limit = limit;
    this.folder = folder;
    Runtime.getRuntime().addShutdownHook(new Thread(this::shutDown, "sweep-process-end"));
  }

  /** Measures a choice. */
  SweepResult run(SweepChoice choice) throws IOException {
    Path json = folder.resolve(choice.name().replace(' ', '-') + ".json");
    Path stderr = folder.resolve(choice.name().replace(' ', '-') + ".err");
    ProcessBuilder builder =
        new ProcessBuilder(arguments(choice, json))
            .redirectOutput(ProcessBuilder.Redirect.DISCARD)
            .redirectError(stderr.toFile());
    builder.environment().clear();
    builder.environment().putAll(environment);
    builder.environment().keySet().removeAll(List.of("NCCL_ALGO", "NCCL_PROTO"));
    builder.environment().putAll(choice.environment());
    start(builder);
    boolean exited = waitFor(running, asked.processes() ? limit.plus(GRACE) : limit);
    terminate();
    checkOpen();
    return exited
        ? result(choice, running.exitValue(), message(stderr, running.exitValue()), json)
        : timedOut(choice, json);
  }

  /** Starts a process, unless this one is already shutting down. */
  private synchronized void start(ProcessBuilder builder) throws IOException {
    checkOpen();
    running = builder.start();
  }

  private void checkOpen() {
    if (closing) {
      throw new IllegalStateException("this process is exiting");
    }
  }

  /** Terminates the running process and deletes the files, when this process exits. */
  private void shutDown() {
    synchronized (this) {
      closing = true;
    }
    terminate();
    try {
      close();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Deletes the folder with its contents; idempotent. */
  @Override
  public synchronized void close() throws IOException {
    OutputFile.deleteFolder(folder);
  }

  private List<String> arguments(SweepChoice choice, Path json) {
    List<String> arguments = new ArrayList<>(command);
    arguments.addAll(choice.arguments());
    arguments.addAll(List.of("-J", json.toString()));
    // With --procs the command terminates its own processes.
    arguments.addAll(
        asked.processes() ? List.of("--limit", "" + limit.toSeconds()) : List.of("--child"));
    return arguments;
  }

  private SweepResult timedOut(SweepChoice choice, Path json) throws IOException {
    String reason = "timed out after " + limit.toSeconds() + " s";
    try {
      return new SweepResult(choice, SweepResult.State.FAILED, reason, measured(json, choice));
    } catch (IllegalArgumentException e) {
      // It may have been terminated while it wrote the file.
      return new SweepResult(
          choice, SweepResult.State.FAILED, reason + " with an incomplete result", List.of());
    }
  }

  private static SweepResult result(SweepChoice choice, int status, String message, Path json)
      throws IOException {
    List<PerfRun> runs;
    try {
      runs = measured(json, choice);
    } catch (IllegalArgumentException e) {
      String reason = status == 0 ? e.getMessage() : message;
      return new SweepResult(choice, SweepResult.State.FAILED, reason, List.of());
    }
    if (status == 0 && !runs.isEmpty()) {
      return new SweepResult(choice, SweepResult.State.MEASURED, "", runs);
    }
    if (status == WRONG_DATA && !runs.isEmpty()) {
      return new SweepResult(choice, SweepResult.State.WRONG, "some data was wrong", runs);
    }
    boolean refused = !choice.environment().isEmpty() && message.contains(REFUSED);
    return new SweepResult(
        choice, refused ? SweepResult.State.REFUSED : SweepResult.State.FAILED, message, runs);
  }

  /**
   * Returns why a process failed: the command's message, or else the last line of stderr. Native
   * libraries may print bytes that are not UTF-8.
   */
  private String message(Path stderr, int status) throws IOException {
    List<String> lines =
        new String(Files.readAllBytes(stderr), StandardCharsets.UTF_8)
            .lines()
            .map(String::strip)
            .filter(line -> !line.isEmpty())
            .toList();
    return lines.stream()
        .filter(line -> line.contains(asked.program() + ": "))
        .findFirst()
        .map(line -> line.substring(line.indexOf(asked.program()) + asked.program().length() + 2))
        .orElse(lines.isEmpty() ? "exited with status " + status : lines.getLast());
  }

  /**
   * Reads and deletes the result of a process; the next round uses the same file name.
   *
   * @throws IllegalArgumentException if the file is incomplete
   */
  private static List<PerfRun> measured(Path json, SweepChoice choice) throws IOException {
    try {
      // A terminated process leaves its file empty.
      return !Files.exists(json) || Files.size(json) == 0
          ? List.of()
          : List.of(PerfRun.read(json, choice.name()));
    } finally {
      Files.deleteIfExists(json);
    }
  }

  /** Terminates the running process and its descendants, by force after a time-out. */
  private void terminate() {
    Process process = running;
    if (process == null || !process.isAlive()) {
      return;
    }
    List<ProcessHandle> descendants = process.descendants().toList();
    process.destroy();
    if (!waitFor(process, TERMINATION_TIMEOUT)) {
      descendants.forEach(ProcessHandle::destroyForcibly);
      process.destroyForcibly();
      waitFor(process, TERMINATION_TIMEOUT);
    }
  }

  private static boolean waitFor(Process process, Duration timeout) {
    try {
      return process.waitFor(timeout.toMillis(), TimeUnit.MILLISECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new IllegalStateException("interrupted while a choice was measured", e);
    }
  }
}
