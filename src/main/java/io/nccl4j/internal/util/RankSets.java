package io.nccl4j.internal.util;

import java.util.BitSet;
import java.util.Set;
import java.util.StringJoiner;

/** Sets of ranks as bit sets. */
public final class RankSets {
  private static final int MOST_RANGES = 16;

  private RankSets() {}

  /** Returns the set of one rank. */
  public static BitSet of(int rank) {
    BitSet bits = new BitSet();
    bits.set(rank);
    return bits;
  }

  public static BitSet of(Set<Integer> ranks) {
    BitSet bits = new BitSet();
    ranks.forEach(bits::set);
    return bits;
  }

  /**
   * Describes ranks, such as {@code rank 3} or {@code ranks 1, 2, 4-7}. Names at most {@value
   * #MOST_RANGES} ranges, and the number of further ranks.
   */
  public static String describe(BitSet ranks) {
    StringJoiner ranges = new StringJoiner(", ");
    int left = ranks.cardinality();
    String name = left == 1 ? "rank " : "ranks ";
    int first = ranks.nextSetBit(0);
    for (int n = 0; first >= 0 && n < MOST_RANGES; n++) {
      // Two ranks are not a range.
      int end = ranks.nextClearBit(first);
      int last = end - first == 2 ? first : end - 1;
      ranges.add(last == first ? "" + first : first + "-" + last);
      left -= last - first + 1;
      first = ranks.nextSetBit(last + 1);
    }
    return name + ranges + (left == 0 ? "" : " and " + left + " more");
  }
}
