package io.nccl4j.tools.evidence;

import io.nccl4j.tools.cli.JsonTree;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The outcome of one step.
 *
 * @param status how it ended
 * @param report its results; if it was killed, those so far
 * @param seconds how long it ran
 * @param output the end of each process's output, by label, of processes without a report, and of
 *     all if the status is bad
 */
record Outcome(
    Step step, Status status, Report report, double seconds, Map<String, String> output) {
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
        "output", output);
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
