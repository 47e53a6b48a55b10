package io.nccl4j.schedule;

import io.nccl4j.internal.util.Arguments;
import java.util.BitSet;
import java.util.List;

/** A permutation of the ranks: which rank is at which position. */
final class Permutation {
  private final int size;
  // Both are null if the ranks are in rank order, of which there may be very many.
  private final int[] rankAt;
  private final int[] placeOf;

  private Permutation(int size, int[] rankAt, int[] placeOf) {
    this.size = size;
    this.rankAt = rankAt;
    this.placeOf = placeOf;
  }

  static Permutation inOrder(int ranks) {
    Arguments.atLeast(ranks, "ranks", 1);
    return new Permutation(ranks, null, null);
  }

  /** Returns the order of a list, rotated to begin at an index. */
  static Permutation of(List<Integer> order, int first) {
    check(order, "order");
    int size = order.size();
    int[] rankAt = new int[size];
    int[] placeOf = new int[size];
    for (int place = 0; place < size; place++) {
      rankAt[place] = order.get((first + place) % size);
      placeOf[rankAt[place]] = place;
    }
    return new Permutation(size, rankAt, placeOf);
  }

  static void check(List<Integer> order, String argument) {
    List<Integer> ranks = Arguments.copyOf(order, argument);
    if (ranks.isEmpty()) {
      throw new IllegalArgumentException(argument + " is empty; it must contain every rank once");
    }
    BitSet seen = new BitSet();
    for (int rank : ranks) {
      if (rank < 0 || rank >= ranks.size() || seen.get(rank)) {
        throw new IllegalArgumentException(
            "%s is %s; it must contain every rank from 0 to %d once"
                .formatted(argument, ranks, ranks.size() - 1));
      }
      seen.set(rank);
    }
  }

  int size() {
    return size;
  }

  int rank(int place) {
    return rankAt == null ? place : rankAt[place];
  }

  int place(int rank) {
    return placeOf == null ? rank : placeOf[rank];
  }
}
