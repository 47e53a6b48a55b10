package io.nccl4j.tools.trace;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The offsets that align the clocks of several hosts. Processes that share a kernel share its
 * clock. The others are aligned by the collectives that no rank finishes before all have started,
 * since these end at almost the same time on all ranks.
 */
final class Clocks {
  /** Identifies a collective on all of its ranks. */
  private record CommonCollective(String communicator, long sequence) {}

  /**
   * The offset of a clock.
   *
   * @param nanos the nanoseconds to add to its times
   * @param samples the number of collectives that it is based on; 0 if the offset is unknown
   * @param spread the interquartile range of these samples, in nanoseconds
   */
  record Offset(long nanos, int samples, long spread) {}

  private final Map<String, Offset> offsets = new LinkedHashMap<>();

  private Clocks() {}

  /** Computes the offsets of all clocks to that of the first span. */
  static Clocks of(List<TraceSpan> spans) {
    Map<String, Map<CommonCollective, Long>> ends = new LinkedHashMap<>();
    for (TraceSpan span : spans) {
      Map<CommonCollective, Long> own =
          ends.computeIfAbsent(span.source().clock(), clock -> new HashMap<>());
      if (span.synchronizes()) {
        TraceSpan.Moved moved = span.operation();
        own.merge(
            new CommonCollective(moved.communicator(), moved.sequence()), span.ended(), Math::max);
      }
    }
    Clocks clocks = new Clocks();
    clocks.compare(ends);
    return clocks;
  }

  /** Computes the offset of each clock from collectives in common with the clocks before it. */
  private void compare(Map<String, Map<CommonCollective, Long>> ends) {
    Map<CommonCollective, Long> known = new HashMap<>();
    List<String> left = new ArrayList<>(ends.keySet());
    while (!left.isEmpty()) {
      String next = left.getFirst();
      for (String clock : left) {
        if (!Collections.disjoint(ends.get(clock).keySet(), known.keySet())) {
          next = clock;
          break;
        }
      }
      left.remove(next);
      Offset offset = offset(known, ends.get(next));
      offsets.put(next, offset);
      ends.get(next)
          .forEach((collective, end) -> known.merge(collective, end + offset.nanos(), Math::max));
    }
  }

  private static Offset offset(Map<CommonCollective, Long> known, Map<CommonCollective, Long> own) {
    List<Long> differences =
        own.entrySet().stream()
            .filter(entry -> known.containsKey(entry.getKey()))
            .map(entry -> known.get(entry.getKey()) - entry.getValue())
            .sorted()
            .toList();
    int count = differences.size();
    return count == 0
        ? new Offset(0, 0, 0)
        : new Offset(
            differences.get(count / 2),
            count,
            differences.get(count * 3 / 4) - differences.get(count / 4));
  }

  /** Returns the nanoseconds to add to the times of a recording. */
  long offsetOf(Source source) {
    Offset offset = offsets.get(source.clock());
    return offset == null ? 0 : offset.nanos();
  }

  /** Returns the offset of each clock, that of the first span first. */
  Map<String, Offset> offsets() {
    return offsets;
  }
}
