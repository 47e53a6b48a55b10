package io.nccl4j.tools.perf.sweep;

import io.nccl4j.tools.perf.report.PerfRun;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;

/**
 * What came of one choice, in one round or in several.
 *
 * @param choice the choice
 * @param state how it ended
 * @param reason why it is not fine, or an empty text
 * @param rounds what was measured all the same, of each round that measured anything
 */
record SweepResult(SweepChoice choice, State state, String reason, List<PerfRun> rounds) {
  /** How a choice ended, from well to worse. */
  enum State {
    /** All sizes were measured. */
    MEASURED("ok"),
    /** NCCL has no such choice here, at least not for the sizes that are missing. */
    REFUSED("n/a"),
    /** Some data was wrong. */
    WRONG("wrong"),
    /** It failed, or took too long. */
    FAILED("failed");

    private final String label;

    State(String label) {
      this.label = label;
    }

    String label() {
      return label;
    }
  }

  /** Returns this and another round: of how they ended, what is worse. */
  SweepResult and(SweepResult next) {
    List<PerfRun> both = new ArrayList<>(rounds);
    both.addAll(next.rounds);
    SweepResult worse = next.state.compareTo(state) > 0 ? next : this;
    return new SweepResult(choice, worse.state, worse.reason, List.copyOf(both));
  }

  /** Returns what was measured at a size, the quickest round or a wrong one, or nothing. */
  Optional<PerfRun.Cell> at(long bytes) {
    List<PerfRun.Cell> cells =
        rounds.stream()
            .flatMap(measured -> measured.rows().stream())
            .filter(row -> row.bytes() == bytes && row.outOfPlace() != null)
            .map(PerfRun.Row::outOfPlace)
            .toList();
    return cells.stream()
        .filter(cell -> cell.wrong() > 0)
        .findFirst()
        .or(() -> cells.stream().min(Comparator.comparingDouble(PerfRun.Cell::micros)));
  }

  /** Returns the time of right data at a size in microseconds, or NaN. */
  double micros(long bytes) {
    return at(bytes).filter(cell -> cell.wrong() <= 0).map(PerfRun.Cell::micros).orElse(Double.NaN);
  }

  /** Returns what stands where nothing was measured. */
  String missing() {
    return state == State.FAILED ? State.FAILED.label() : State.REFUSED.label();
  }
}
