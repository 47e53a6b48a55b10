package io.nccl4j.tools.perf;

import java.util.Arrays;

/**
 * What several times have in common, as nccl-tests counts it: percentiles are values that occurred.
 *
 * @param min the shortest
 * @param max the longest
 * @param avg the mean
 * @param p50 the value in the middle
 * @param p95 at least 95 in 100 are no longer
 * @param p99 at least 99 in 100 are no longer
 * @param stdev the standard deviation
 */
record Statistics(
    double min, double max, double avg, double p50, double p95, double p99, double stdev) {
  /** Returns the statistics of some times, without the first of them. */
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
        percentile(sorted, 95),
        percentile(sorted, 99),
        Math.sqrt(variance));
  }

  private static double percentile(double[] sorted, int percent) {
    return sorted[Math.min(sorted.length - 1, (sorted.length * percent + 99) / 100 - 1)];
  }

  /** Returns the coefficient of variation in percent. */
  double variation() {
    return avg > 0 ? stdev / avg * 100 : 0;
  }
}
