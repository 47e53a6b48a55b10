package io.nccl4j.tools.evidence;

import io.nccl4j.tools.cli.JsonTree;
import java.time.Duration;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The outcome of one step.
 *
 * @param status how it ended
 * @param report its results; if it was killed, those so far
 * @param seconds how long it ran
 * @param tails the end of each process's output, by label; empty unless the status is bad
 */
record Outcome(Step step, Status status, Report report, double seconds, Map<String, String> tails) {
  /** How a step ended. */
  enum Status {
    PASSED("passed"),
    FAILED("FAILED"),
    CRASHED("CRASHED"),
    TIMED_OUT("TIMED OUT"),
    /** Not started, because no time was left. */
    NOT_RUN("NOT RUN"),
    /** Written before a step; stays if the command is ended from outside during the step. */
    RUNNING("RUNNING"),
    NOT_POSSIBLE("not possible here");

    private final String label;

    Status(String label) {
      this.label = label;
    }

    String label() {
      return label;
    }

    static Status of(String label) {
      return Arrays.stream(values())
          .filter(status -> status.label.equals(label))
          .findFirst()
          .orElseThrow(() -> new IllegalArgumentException("unknown status " + label));
    }

    /** Returns whether it counts as a failure; a step that is not possible here does not. */
    boolean bad() {
      return this != PASSED && this != NOT_POSSIBLE;
    }
  }

  static Outcome notPossible(Step step, String reason) {
    Report report = Report.of(Report.Verdict.NOT_POSSIBLE, reason);
    return new Outcome(step, Status.NOT_POSSIBLE, report, 0, Map.of());
  }

  /** Returns the outcome of a step that was not run to its end. */
  static Outcome withoutResult(Step step, Status status, String reason) {
    return new Outcome(step, status, Report.of(Report.Verdict.UNFINISHED, reason), 0, Map.of());
  }

  Map<String, Object> tree() {
    return JsonTree.object(
        "name", step.name(),
        "title", step.title(),
        "status", status.label(),
        "summary", report.summary(),
        "seconds", Table.rounded(seconds, 1),
        "deadline_seconds", step.deadline().toSeconds(),
        "commands", step.commands().stream().map(Outcome::tree).toList(),
        "facts", report.facts(),
        "tables", report.tables().stream().map(Table::tree).toList(),
        "notes", report.notes(),
        "output", tails);
  }

  @SuppressWarnings("unchecked") // The other side of tree().
  static Outcome of(Map<String, Object> tree) {
    List<Step.Command> commands =
        ((List<Map<String, Object>>) tree.get("commands")).stream().map(Outcome::command).toList();
    Status status = Status.of((String) tree.get("status"));
    String summary = (String) tree.get("summary");
    Duration deadline = Duration.ofSeconds((long) tree.get("deadline_seconds"));
    Step step =
        new Step(
            (String) tree.get("name"),
            (String) tree.get("title"),
            deadline,
            null,
            commands,
            status == Status.NOT_POSSIBLE ? summary : null);
    Report report =
        new Report(
            status.bad() ? Report.Verdict.FAILED : Report.Verdict.PASSED,
            summary,
            (Map<String, String>) tree.get("facts"),
            ((List<Map<String, Object>>) tree.get("tables")).stream().map(Table::of).toList(),
            (List<String>) tree.get("notes"));
    double seconds = ((Number) tree.get("seconds")).doubleValue();
    return new Outcome(step, status, report, seconds, (Map<String, String>) tree.get("output"));
  }

  @SuppressWarnings("unchecked") // The other side of tree(Step.Command).
  private static Step.Command command(Map<String, Object> tree) {
    return new Step.Command(
        (String) tree.get("label"),
        (List<String>) tree.get("words"),
        (Map<String, String>) tree.get("environment"),
        null);
  }

  private static Map<String, Object> tree(Step.Command command) {
    Map<String, String> environment = new LinkedHashMap<>(command.environment());
    environment.remove("CLASSPATH");
    return JsonTree.object(
        "label", command.label(),
        "environment", environment,
        "words", List.copyOf(command.words()));
  }
}
