package io.nccl4j.tools.perf;

import java.util.List;

/**
 * How long one operation took.
 *
 * @param seconds from enqueuing the first to the end of the last, divided by how many there were
 * @param cpuSeconds to the end of enqueuing, likewise
 * @param iterations the time of each iteration, or null
 */
// The array is made for the record and goes to the report alone.
@SuppressWarnings("ArrayRecordComponent")
record Timing(double seconds, double cpuSeconds, double[] iterations) {
  /** Returns the one time that stands for those of all threads. */
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

  /** Returns the one time that stands for those of all processes. */
  Timing ofAll(CrossRankStats tally, Settings.Average average) {
    return new Timing(tally.average(seconds, average), cpuSeconds, iterations);
  }

  Timing withIterations(double[] all) {
    return new Timing(seconds, cpuSeconds, all);
  }
}
