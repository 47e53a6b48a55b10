package io.nccl4j.tools.perf;

import java.util.Arrays;

/**
 * How long single operations took, in seconds. Each value is one that occurred: the least that so
 * many in 100 do not exceed.
 *
 * @param count how many operations there were
 * @param min the shortest
 * @param p50 the value in the middle
 * @param p90 at least 90 in 100 took no longer
 * @param p99 at least 99 in 100 took no longer; of fewer than 100, the longest
 * @param max the longest
 */
record Percentiles(int count, double min, double p50, double p90, double p99, double max) {
  /** Returns the percentiles of some times. */
  static Percentiles of(double[] times) {
    double[] sorted = times.clone();
    Arrays.sort(sorted);
    return new Percentiles(
        sorted.length,
        sorted[0],
        at(sorted, 50),
        at(sorted, 90),
        at(sorted, 99),
        sorted[sorted.length - 1]);
  }

  private static double at(double[] sorted, int percent) {
    return sorted[Math.max(0, Math.ceilDiv(sorted.length * percent, 100) - 1)];
  }
}
