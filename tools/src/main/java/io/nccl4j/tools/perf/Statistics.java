package io.nccl4j.tools.perf;

import java.util.Arrays;

/**
 * Statistics of several times, computed as in nccl-tests: percentiles are not interpolated.
 *
 * @param min the shortest time
 * @param max the longest time
 * @param avg the mean
 * @param p50 the median; of an even number of times, the upper one
 * @param p95 the 95th percentile
 * @param p99 the 99th percentile
 * @param stdev the standard deviation
 */
record Statistics(
    double min, double max, double avg, double p50, double p95, double p99, double stdev) {
  /** Returns the statistics of times, without the first {@code skipped}. */
  static Statistics of(double[] times, int skipped) {
    double[] sorted = Arrays.copyOfRange(times, skipped, times.length);
    Arrays.sort(sorted);
    double avg = Arrays.stream(sorted).average().orElseThrow();
    double variance =
        Arrays.stream(sorted).map(time -> (time - avg) * (time - avg)).average().orElseThrow();
    return new Statistics(
        sorted[0],
        sorted[sorted.length - 1],
        avg,
        sorted[sorted.length / 2],
        Percentiles.at(sorted, 95),
        Percentiles.at(sorted, 99),
        Math.sqrt(variance));
  }

  /** Returns the coefficient of variation in percent. */
  double variation() {
    return avg > 0 ? stdev / avg * 100 : 0;
  }
}
