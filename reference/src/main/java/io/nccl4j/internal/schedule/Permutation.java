package io.nccl4j.internal.schedule;

import io.nccl4j.internal.util.Arguments;
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
    Arguments.everyRankOnce(order, "order");
    int size = order.size();
    int[] rankAt = new int[size];
    int[] placeOf = new int[size];
    for (int place = 0; place < size; place++) {
      rankAt[place] = order.get((first + place) % size);
      placeOf[rankAt[place]] = place;
    }
    return new Permutation(size, rankAt, placeOf);
  }

  /** Returns the order of a channel; an empty list is rank order. */
  static List<Integer> order(List<List<Integer>> orders, int channel, int ranks) {
    List<Integer> order = orders.isEmpty() ? List.of() : orders.get(channel % orders.size());
    return order.size() == ranks ? order : List.of();
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
