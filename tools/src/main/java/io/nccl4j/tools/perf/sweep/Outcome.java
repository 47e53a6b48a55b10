package io.nccl4j.tools.perf.sweep;

import io.nccl4j.tools.perf.report.PerfRun;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import java.util.TreeSet;
import java.util.stream.Collectors;

/**
 * The results of a sweep. Times are of out-of-place operations.
 *
 * @param collective the measured collective
 * @param backend the backend's name
 * @param rounds the number of rounds
 * @param results a result for each choice, the automatic one first
 * @param chosen a run with what NCCL chose itself, or null on the reference backend
 */
record Outcome(
    String collective, String backend, int rounds, List<SweepResult> results, SweepResult chosen) {
  /** Returns the result of the automatic choice. */
  SweepResult automatic() {
    return results.getFirst();
  }

  /** Returns what NCCL chose itself for a size, if it is known. */
  Optional<String> chosen(long bytes) {
    return chosen.at(bytes).map(PerfRun.Cell::algorithm);
  }

  /** Returns the results of the other choices. */
  List<SweepResult> forced() {
    return results.subList(1, results.size());
  }

  /** Returns the first run of the first choice that has one. */
  Optional<PerfRun> first() {
    return results.stream().flatMap(result -> result.rounds().stream()).findFirst();
  }

  /** Returns all sizes in ascending order. */
  List<Long> sizes() {
    return List.copyOf(
        results.stream()
            .flatMap(result -> result.rounds().stream())
            .flatMap(measured -> measured.rows().stream())
            .map(PerfRun.Row::bytes)
            .collect(Collectors.toCollection(TreeSet::new)));
  }

  /** Returns the quickest forced choice with right data. */
  Optional<SweepResult> best(long bytes) {
    return forced().stream()
        .filter(result -> !Double.isNaN(result.micros(bytes)))
        .min(Comparator.comparingDouble(result -> result.micros(bytes)));
  }

  /** Returns the extra time of the automatic choice, as a fraction of the best time, or NaN. */
  double cost(long bytes) {
    return best(bytes)
        .map(best -> automatic().micros(bytes) / best.micros(bytes) - 1)
        .orElse(Double.NaN);
  }

  /** Returns whether the cost may be chance: the spreads of both times overlap. */
  boolean costMayBeChance(long bytes) {
    return !Double.isNaN(cost(bytes))
        && automatic()
            .at(bytes)
            .orElseThrow()
            .overlaps(best(bytes).flatMap(best -> best.at(bytes)).orElseThrow());
  }

  /** Returns whether anything was measured. */
  boolean measuredAnything() {
    return !sizes().isEmpty();
  }

  /** Returns whether any data was wrong. */
  boolean wrong() {
    return results.stream().anyMatch(result -> result.state() == SweepResult.State.WRONG);
  }

  /** Returns whether it ran on the emulated CUDA of nccl4j's tests, whose times mean nothing. */
  boolean emulated() {
    return first().map(PerfRun::emulated).orElse(false);
  }
}
