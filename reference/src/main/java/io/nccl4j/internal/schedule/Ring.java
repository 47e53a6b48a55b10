package io.nccl4j.internal.schedule;

import io.nccl4j.schedule.Layout;
import java.util.List;
import java.util.Objects;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.jspecify.annotations.NullMarked;

/**
 * The order of the ranks around one channel's ring. Each rank sends to the next, and the last to
 * the first. A rank's position is its distance from rank 0, as in NCCL.
 */
@NullMarked
public final class Ring {
  private final Permutation positions;

  private Ring(Permutation positions) {
    this.positions = positions;
  }

  /**
   * {@return a ring with the ranks in rank order}
   *
   * @param ranks the number of ranks; 1 or more
   * @throws IllegalArgumentException if there are no ranks
   */
  public static Ring inRankOrder(int ranks) {
    return new Ring(Permutation.inOrder(ranks));
  }

  /**
   * {@return the ring of a channel}
   *
   * @param layout the layout, with the orders of its rings
   * @param channel the channel, from 0
   * @param ranks the number of ranks; 1 or more
   */
  public static Ring of(Layout layout, int channel, int ranks) {
    List<Integer> order = Permutation.order(layout.ringOrders(), channel, ranks);
    return order.isEmpty() ? inRankOrder(ranks) : of(order);
  }

  /**
   * {@return a ring in which each rank sends to the next rank of a list}
   *
   * @param order a list that contains every rank from 0 once; it may start at any rank
   * @throws IllegalArgumentException if the list does not contain every rank once
   */
  public static Ring of(List<Integer> order) {
    Objects.requireNonNull(order, "order");
    return new Ring(Permutation.of(order, order.indexOf(0)));
  }

  /** {@return the number of ranks} */
  public int size() {
    return positions.size();
  }

  /**
   * {@return the position of a rank: its distance from rank 0}
   *
   * @param rank the rank
   */
  public int position(int rank) {
    return positions.place(rank);
  }

  /**
   * {@return the rank at a position}
   *
   * @param position the distance from rank 0, less than {@link #size()}
   */
  public int rank(int position) {
    return positions.rank(position);
  }

  /**
   * {@return the rank that a rank sends to}
   *
   * @param rank the rank
   */
  public int next(int rank) {
    int position = position(rank) + 1;
    return rank(position == size() ? 0 : position);
  }

  /**
   * {@return the rank that a rank receives from}
   *
   * @param rank the rank
   */
  public int previous(int rank) {
    int position = position(rank);
    return rank(position == 0 ? size() - 1 : position - 1);
  }

  @Override
  public String toString() {
    return IntStream.range(0, size())
        .mapToObj(position -> Integer.toString(rank(position)))
        .collect(Collectors.joining(" ", "ring ", ""));
  }
}
