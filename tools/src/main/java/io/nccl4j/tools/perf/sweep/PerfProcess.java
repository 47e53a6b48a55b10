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
 * Measures choices, each in a process of its own with a deadline. None outlives this process: it
 * ends them when it ends, removes what they have left, and each ends itself when its standard input
 * does.
 */
final class PerfProcess implements AutoCloseable {
  private static final int WRONG_DATA = 3;
  private static final Duration FORCE = Duration.ofSeconds(5);

  /** How long a command that ends its own processes at the limit may take for that. */
  private static final Duration GRACE = Duration.ofSeconds(20);

  /** What NCCL answers to a choice that it does not have. */
  private static final String REFUSED = "(" + NcclResult.INVALID_USAGE + ", code ";

  private final List<String> command;
  private final Map<String, String> environment;
  private final Asked asked;
  private final Duration limit;
  private final Path folder;
  private volatile Process running;
  private volatile boolean closing;

  /**
   * Prepares to start processes.
   *
   * @param command what starts the bandwidth command, with all arguments but those of a choice
   * @param environment what each gets but for the variables of a choice
   * @param asked what those ask for
   * @param limit how long each may take
   * @param folder where it may leave files
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
    Runtime.getRuntime().addShutdownHook(new Thread(this::endForGood, "sweep-process-end"));
  }

  /** Measures a choice. */
  SweepResult run(SweepChoice choice) throws IOException {
    Path json = folder.resolve(choice.name().replace(' ', '-') + ".json");
    Path said = folder.resolve(choice.name().replace(' ', '-') + ".err");
    ProcessBuilder builder =
        new ProcessBuilder(arguments(choice, json))
            .redirectOutput(ProcessBuilder.Redirect.DISCARD)
            .redirectError(said.toFile());
    builder.environment().clear();
    builder.environment().putAll(environment);
    builder.environment().keySet().removeAll(List.of("NCCL_ALGO", "NCCL_PROTO"));
    builder.environment().putAll(choice.environment());
    start(builder);
    boolean late = !ended(running, asked.processes() ? limit.plus(GRACE) : limit);
    end();
    checkOpen();
    return late
        ? late(choice, json)
        : result(choice, running.exitValue(), message(said, running.exitValue()), json);
  }

  /** Starts a process that the end of this one cannot miss. */
  private synchronized void start(ProcessBuilder builder) throws IOException {
    checkOpen();
    running = builder.start();
  }

  private void checkOpen() {
    if (closing) {
      throw new IllegalStateException("ended from outside");
    }
  }

  /** Ends what is running when this process ends, and removes its files. */
  private void endForGood() {
    synchronized (this) {
      closing = true;
    }
    end();
    try {
      close();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Removes the folder and all that is in it, if that has not been done. */
  @Override
  public synchronized void close() throws IOException {
    OutputFile.deleteFolder(folder);
  }

  private List<String> arguments(SweepChoice choice, Path json) {
    List<String> arguments = new ArrayList<>(command);
    arguments.addAll(choice.arguments());
    arguments.addAll(List.of("-J", json.toString()));
    // What starts processes itself ends them by itself.
    arguments.addAll(
        asked.processes() ? List.of("--limit", "" + limit.toSeconds()) : List.of("--child"));
    return arguments;
  }

  private SweepResult late(SweepChoice choice, Path json) throws IOException {
    String reason = "it had not ended after " + limit.toSeconds() + " s";
    try {
      return new SweepResult(choice, SweepResult.State.FAILED, reason, measured(json, choice));
    } catch (IllegalArgumentException e) {
      // It may have been ended while it wrote.
      return new SweepResult(
          choice, SweepResult.State.FAILED, reason + ", and its result is not whole", List.of());
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
   * Returns why a process failed: the command's own line, or else the last one. Native libraries
   * may say what is no UTF-8.
   */
  private String message(Path said, int status) throws IOException {
    List<String> lines =
        new String(Files.readAllBytes(said), StandardCharsets.UTF_8)
            .lines()
            .map(String::strip)
            .filter(line -> !line.isEmpty())
            .toList();
    return lines.stream()
        .filter(line -> line.contains(asked.program() + ": "))
        .findFirst()
        .map(line -> line.substring(line.indexOf(asked.program()) + asked.program().length() + 2))
        .orElse(lines.isEmpty() ? "it ended with status " + status : lines.getLast());
  }

  /**
   * Returns what a process has measured, and removes its file, which the next round takes again.
   *
   * @throws IllegalArgumentException if the file is not whole
   */
  private static List<PerfRun> measured(Path json, SweepChoice choice) throws IOException {
    try {
      // A process that was ended has taken its file, and not written it.
      return !Files.exists(json) || Files.size(json) == 0
          ? List.of()
          : List.of(PerfRun.read(json, choice.name()));
    } finally {
      Files.deleteIfExists(json);
    }
  }

  /** Ends what is still running and what it has started, by force where asking does not help. */
  private void end() {
    Process process = running;
    if (process == null || !process.isAlive()) {
      return;
    }
    List<ProcessHandle> below = process.descendants().toList();
    process.destroy();
    if (!ended(process, FORCE)) {
      below.forEach(ProcessHandle::destroyForcibly);
      process.destroyForcibly();
      ended(process, FORCE);
    }
  }

  private static boolean ended(Process process, Duration wait) {
    try {
      return process.waitFor(wait.toMillis(), TimeUnit.MILLISECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new IllegalStateException("interrupted while a choice was measured", e);
    }
  }
}
