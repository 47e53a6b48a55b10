package io.nccl4j.internal.util;

import java.util.BitSet;
import java.util.Set;

/** Sets of ranks as bit sets. */
public final class RankSets {
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

  /** Describes ranks, such as {@code rank 3} or {@code ranks 1, 2}. */
  public static String describe(BitSet ranks) {
    String list = ranks.toString();
    return (ranks.cardinality() == 1 ? "rank " : "ranks ") + list.substring(1, list.length() - 1);
  }
}
