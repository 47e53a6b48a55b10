package io.nccl4j.tools.perf.sweep;

import io.nccl4j.tools.cli.Commands;
import io.nccl4j.tools.perf.PerfCommand;
import io.nccl4j.tools.perf.PerfCommand.Asked;
import io.nccl4j.tools.perf.report.PerfRun;
import io.nccl4j.tools.processes.ChildProcesses;
import java.io.IOException;
import java.lang.ProcessBuilder.Redirect;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;

/** Measures choices, each in a separate process with a deadline. */
final class PerfProcess implements AutoCloseable {
  /** Extra time for a command that terminates its own processes at the limit. */
  private static final Duration GRACE = Duration.ofSeconds(20);

  private final List<String> command;
  private final Map<String, String> environment;
  private final Asked asked;
  private final Duration limit;
  private final ChildProcesses children = new ChildProcesses("nccl4j-sweep-");

  /**
   * Creates a runner, which starts no process yet.
   *
   * @param command the bandwidth command, with all arguments but those of a choice
   * @param environment the environment of each process, but for NCCL_ALGO and NCCL_PROTO
   * @param asked the parsed arguments of the command
   * @param limit the time limit of each process
   */
  PerfProcess(List<String> command, Map<String, String> environment, Asked asked, Duration limit)
      throws IOException {
    this.command = command;
    this.environment = new HashMap<>(environment);
    this.environment.keySet().removeAll(List.of("NCCL_ALGO", "NCCL_PROTO"));
    this.asked = asked;
    this.limit = limit;
  }

  /** Measures a choice, with more arguments. */
  SweepResult run(SweepChoice choice, String... more) throws IOException {
    String name = choice.name().replace(' ', '-');
    Path json = children.folder().resolve(name + ".json");
    Path stderr = children.folder().resolve(name + ".err");
    OptionalInt status =
        children.run(
            arguments(choice, json, more),
            environment,
            Redirect.DISCARD,
            Redirect.to(stderr.toFile()),
            asked.processes() ? limit.plus(GRACE) : limit);
    return status.isEmpty()
        ? timedOut(choice, json)
        : result(choice, status.getAsInt(), message(stderr, status.getAsInt()), json);
  }

  @Override
  public void close() throws IOException {
    children.close();
  }

  private List<String> arguments(SweepChoice choice, Path json, String... more) {
    List<String> arguments = new ArrayList<>(command);
    arguments.addAll(choice.arguments());
    arguments.addAll(List.of(more));
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
    if (status == Commands.WRONG_DATA && !runs.isEmpty()) {
      return new SweepResult(choice, SweepResult.State.WRONG, "some data was wrong", runs);
    }
    boolean refused = message.contains(PerfCommand.REFUSED);
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
}
