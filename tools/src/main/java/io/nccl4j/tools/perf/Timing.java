package io.nccl4j.tools.perf;

import java.util.List;

/**
 * The time of one operation, in seconds.
 *
 * @param seconds the time from enqueuing the first to the end of the last, per operation
 * @param cpuSeconds the time to enqueue all of them, per operation
 * @param iterations the time of each iteration, or null
 */
// The array is created for this record and only read by the report.
@SuppressWarnings("ArrayRecordComponent")
record Timing(double seconds, double cpuSeconds, double[] iterations) {
  /** Returns the average over threads. */
  static Timing of(List<Timing> threads, Settings.Average average) {
    Timing first = threads.getFirst();
    double seconds =
        switch (average) {
          case RANK0 -> first.seconds;
          case AVG -> threads.stream().mapToDouble(Timing::seconds).average().orElseThrow();
          case MIN -> threads.stream().mapToDouble(Timing::seconds).min().orElseThrow();
          case MAX -> threads.stream().mapToDouble(Timing::seconds).max().orElseThrow();
        };
    return new Timing(seconds, first.cpuSeconds, null);
  }

  /** Returns the average over processes. */
  Timing ofAll(CrossRankStats stats, Settings.Average average) {
    return new Timing(stats.average(seconds, average), cpuSeconds, iterations);
  }

  Timing withIterations(double[] all) {
    return new Timing(seconds, cpuSeconds, all);
  }
}
