package io.nccl4j.internal.rendezvous;

import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;

/** Formats sets of ranks for messages. */
public final class Ranks {
  private Ranks() {}

  /** Returns a text like {@code rank 3} or {@code ranks 1, 4-7}. */
  public static String text(BitSet ranks) {
    List<String> parts = new ArrayList<>();
    for (int first = ranks.nextSetBit(0); first >= 0; ) {
      int end = ranks.nextClearBit(first);
      parts.add(first == end - 1 ? "" + first : first + "-" + (end - 1));
      first = ranks.nextSetBit(end);
    }
    return (ranks.cardinality() == 1 ? "rank " : "ranks ") + String.join(", ", parts);
  }
}
