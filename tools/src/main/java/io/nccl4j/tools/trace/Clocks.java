package io.nccl4j.tools.trace;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * How much later each clock has to be read, so that all show the same time. Processes that share a
 * kernel share its clock. Others have only the collectives in common that no rank finishes before
 * all have come: these end at almost the same time everywhere.
 */
final class Clocks {
  /** Which collective it is, on whatever rank. */
  private record CommonCollective(String communicator, long sequence) {}

  /**
   * What was found of a clock.
   *
   * @param nanos what is to be added to its times
   * @param meetings from how many collectives that is; 0 if there were none, and nothing is known
   * @param spread by how much half of them differ from each other, in nanoseconds
   */
  record Offset(long nanos, int meetings, long spread) {}

  private final Map<String, Offset> offsets = new LinkedHashMap<>();

  private Clocks() {}

  /** Compares the clocks with the first span's. */
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

  /** Goes from the clocks that are known to those that have collectives in common with them. */
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
          .forEach((meeting, end) -> known.merge(meeting, end + offset.nanos(), Math::max));
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

  /** Returns what is to be added to the times of a recording. */
  long later(Source source) {
    Offset offset = offsets.get(source.clock());
    return offset == null ? 0 : offset.nanos();
  }

  /** Returns what was found of each clock, the one that the others are compared with first. */
  Map<String, Offset> offsets() {
    return offsets;
  }
}
