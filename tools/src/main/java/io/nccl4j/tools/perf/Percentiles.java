package io.nccl4j.tools.perf;

import java.util.Arrays;

/**
 * The times of single operations, in seconds. Percentiles use the nearest-rank method.
 *
 * @param count the number of operations
 * @param min the shortest time
 * @param p50 the 50th percentile
 * @param p90 the 90th percentile
 * @param p99 the 99th percentile; the longest time if there are fewer than 100
 * @param max the longest time
 */
record Percentiles(int count, double min, double p50, double p90, double p99, double max) {
  /** Returns the percentiles of at least one time. */
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

  /** Returns a percentile, 1 to 100, of at least one time in ascending order. */
  static double at(double[] sorted, int percent) {
    return sorted[Math.ceilDiv(sorted.length * percent, 100) - 1];
  }
}
