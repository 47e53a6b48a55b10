package io.nccl4j.tools.perf.sweep;

import io.nccl4j.tools.perf.report.PerfRun;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;

/**
 * The result of one choice, of one or several rounds.
 *
 * @param choice the choice
 * @param state the worst state of all rounds
 * @param reason the reason for that state, or an empty string
 * @param rounds the measurements, also of rounds that failed later
 */
record SweepResult(SweepChoice choice, State state, String reason, List<PerfRun> rounds) {
  /** The state of a choice, from best to worst. */
  enum State {
    /** All sizes were measured. */
    MEASURED("ok"),
    /** NCCL does not offer the choice here, at least not for the missing sizes. */
    REFUSED("n/a"),
    /** Some data was wrong. */
    WRONG("wrong"),
    /** It failed or timed out. */
    FAILED("failed");

    private final String label;

    State(String label) {
      this.label = label;
    }

    String label() {
      return label;
    }
  }

  /** Merges another round into this result; the worse state counts. */
  SweepResult and(SweepResult next) {
    List<PerfRun> both = new ArrayList<>(rounds);
    both.addAll(next.rounds);
    SweepResult worse = next.state.compareTo(state) > 0 ? next : this;
    return new SweepResult(choice, worse.state, worse.reason, List.copyOf(both));
  }

  /**
   * Returns the measurement of a size: one with wrong data if there is any, else the quickest, with
   * the spread from there to the median round.
   */
  Optional<PerfRun.Cell> at(long bytes) {
    List<PerfRun.Cell> cells =
        rounds.stream()
            .flatMap(measured -> measured.rows().stream())
            .filter(row -> row.bytes() == bytes && row.outOfPlace() != null)
            .map(PerfRun.Row::outOfPlace)
            .sorted(Comparator.comparingDouble(PerfRun.Cell::micros))
            .toList();
    return cells.stream()
        .filter(cell -> cell.wrong() > 0)
        .findFirst()
        .or(
            () ->
                cells.stream()
                    .findFirst()
                    .map(
                        quickest ->
                            new PerfRun.Cell(
                                quickest.micros(),
                                quickest.busBw(),
                                quickest.wrong(),
                                quickest.latency(),
                                quickest.micros(),
                                cells.get(cells.size() / 2).micros(),
                                quickest.algorithm())));
  }

  /** Returns the time of a size in microseconds, or NaN if it is missing or the data was wrong. */
  double micros(long bytes) {
    return at(bytes).filter(cell -> cell.wrong() <= 0).map(PerfRun.Cell::micros).orElse(Double.NaN);
  }

  /** Returns the measurements that count, as a run named after the choice. */
  PerfRun run() {
    PerfRun first = rounds.getFirst();
    Map<Long, PerfRun.Row> rows = new TreeMap<>();
    for (PerfRun round : rounds) {
      for (PerfRun.Row row : round.rows()) {
        if (!Double.isNaN(micros(row.bytes()))) {
          PerfRun.Cell cell = at(row.bytes()).orElseThrow();
          rows.put(row.bytes(), new PerfRun.Row(row.bytes(), row.variant(), cell, null));
        }
      }
    }
    return new PerfRun(
        choice.name(),
        first.collective(),
        first.emulated(),
        first.facts(),
        List.copyOf(rows.values()));
  }

  /** Returns the label for sizes that were not measured. */
  String missing() {
    return state == State.FAILED ? State.FAILED.label() : State.REFUSED.label();
  }
}
