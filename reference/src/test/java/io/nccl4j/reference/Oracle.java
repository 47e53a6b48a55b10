package io.nccl4j.reference;

import io.nccl4j.DataType;
import io.nccl4j.schedule.Layout;
import io.nccl4j.schedule.Protocol;
import io.nccl4j.schedule.TreePattern;
import java.util.ArrayList;
import java.util.List;
import java.util.function.BinaryOperator;
import java.util.function.IntFunction;

/**
 * Computes the result of an all-reduce of NCCL in the most direct way: for each element it finds
 * the chunk, and so the order in which the ranks are folded, then folds them with rounding at every
 * step. It shares no code with the implementation under test: of the layout it reads only the
 * parameters.
 */
final class Oracle {
  private final Layout layout;
  private final boolean ring;
  private final int ranks;
  private final long count;
  private final int elementBytes;
  private final List<Long> ends;
  private final List<Node> trees = new ArrayList<>();

  Oracle(Layout layout, boolean ring, int ranks, long count, DataType type) {
    this.layout = layout;
    this.ring = ring;
    this.ranks = ranks;
    this.count = count;
    this.elementBytes = type.bytes();
    this.ends = channelEnds();
    for (int channel = 0; channel < ends.size(); channel++) {
      trees.add(tree(channel));
    }
  }

  /**
   * Folds one element of all ranks.
   *
   * @param own returns a rank's value
   * @param combine combines a rank's own or partial value with the value that it received
   */
  <V> V fold(long element, IntFunction<V> own, BinaryOperator<V> combine) {
    int channel = 0;
    while (element >= ends.get(channel)) {
      channel++;
    }
    if (!ring) {
      return trees.get(channel).fold(own, combine);
    }
    List<Integer> order = ringOrder(channel, element);
    V partial = own.apply(order.getFirst());
    for (int rank : order.subList(1, ranks)) {
      partial = combine.apply(own.apply(rank), partial);
    }
    return partial;
  }

  /** Returns the end of each channel, counting NCCL's cells one by one. */
  private List<Long> channelEnds() {
    boolean lowLatency = layout.protocol() == Protocol.LL;
    long least =
        switch (layout.protocol()) {
          case SIMPLE -> 512L * 64;
          case LL -> 512L * 8 * (ring ? ranks : 1);
          case LL128 -> 640L * 8;
        };
    long bytes = count * elementBytes;
    int channels = layout.channels();
    while (channels > 1 && bytes < channels * least) {
      channels--;
    }
    long traffic = Math.max(32768, bytes * 2 * (lowLatency ? 4 : 1)) / channels;
    traffic += (16 - traffic % 16) % 16;
    long cellBytes = lowLatency ? 4096 : 16384;
    long cellsOfAChannel = (traffic + 32767) / 32768;
    List<Long> ends = new ArrayList<>();
    long cells = 0;
    for (long element = 0; element < count; element += cellBytes / elementBytes) {
      cells++;
      boolean last = element + cellBytes / elementBytes >= count;
      if (last) {
        ends.add(count);
      } else if (cells == cellsOfAChannel && ends.size() < layout.channels() - 1) {
        ends.add(element + cellBytes / elementBytes);
        cells = 0;
      }
    }
    return ends;
  }

  /** Returns the ranks in the order in which an element is folded around the ring. */
  private List<Integer> ringOrder(int channel, long element) {
    long loop = channel == 0 ? 0 : ends.get(channel - 1);
    long chunk = layout.chunkBytes() / elementBytes;
    while (element >= loop + ranks * chunk) {
      loop += ranks * chunk;
    }
    long left = ends.get(channel) - loop;
    if (left < ranks * chunk) {
      chunk = (left + ranks - 1) / ranks;
      while (chunk * elementBytes % 16 != 0) {
        chunk++;
      }
    }
    int last = (int) ((element - loop) / chunk);
    List<Integer> order = new ArrayList<>();
    for (int hop = 1; hop <= ranks; hop++) {
      order.add(rankInRing(channel, (last + hop) % ranks));
    }
    return order;
  }

  private int rankInRing(int channel, int position) {
    if (layout.ringOrders().isEmpty()) {
      return position;
    }
    List<Integer> order = layout.ringOrders().get(channel % layout.ringOrders().size());
    return order.get((order.indexOf(0) + position) % ranks);
  }

  /** A rank that combines its own value with those of its children, one after the other. */
  private record Node(int rank, List<Node> children) {
    <V> V fold(IntFunction<V> own, BinaryOperator<V> combine) {
      V value = own.apply(rank);
      for (Node child : children) {
        value = combine.apply(value, child.fold(own, combine));
      }
      return value;
    }
  }

  /** Returns the root of the tree of a channel. */
  private Node tree(int channel) {
    int half = (layout.channels() + 1) / 2;
    boolean second = channel % (2 * half) >= half;
    List<Integer> order =
        layout.treeOrders().isEmpty()
            ? List.of()
            : layout.treeOrders().get(channel % layout.treeOrders().size());
    IntFunction<Integer> rankAt = position -> order.isEmpty() ? position : order.get(position);
    int perNode = layout.ranksPerNode();
    int nodes = (ranks + perNode - 1) / perNode;
    return chain(0, 0, nodes, second, rankAt);
  }

  /** Returns a subtree from a position in a node's chain; nodes are numbered as in tree one. */
  private Node chain(
      int node, int inChain, int nodes, boolean second, IntFunction<Integer> rankAt) {
    int actualNode = !second ? node : nodes % 2 == 0 ? nodes - 1 - node : (node + 1) % nodes;
    int perNode = layout.ranksPerNode();
    int size = Math.min(perNode, ranks - actualNode * perNode);
    int[] below = nodesBelow(node, nodes);
    List<Node> children = new ArrayList<>();
    if (inChain + 1 < size) {
      children.add(chain(node, inChain + 1, nodes, second, rankAt));
    }
    TreePattern pattern = layout.nodePattern();
    int forFirst = pattern == TreePattern.TREE || size == 1 ? 0 : 1;
    int forSecond = pattern != TreePattern.SPLIT_TREE || size == 1 ? 0 : 1;
    if (below[0] >= 0 && inChain == forFirst) {
      children.add(chain(below[0], 0, nodes, second, rankAt));
    }
    if (below[1] >= 0 && inChain == forSecond) {
      children.add(chain(below[1], 0, nodes, second, rankAt));
    }
    return new Node(rankAt.apply(actualNode * perNode + inChain), children);
  }

  /** Returns the two child nodes in the first tree: half the lowest set bit away, if in range. */
  private static int[] nodesBelow(int node, int nodes) {
    int bit = 1;
    while (bit < nodes && node % (2 * bit) == 0) {
      bit *= 2;
    }
    if (node == 0) {
      return new int[] {-1, nodes > 1 ? bit / 2 : -1};
    }
    int second = -1;
    for (int half = bit / 2; half > 0 && second < 0; half /= 2) {
      second = node + half < nodes ? node + half : -1;
    }
    return new int[] {bit > 1 ? node - bit / 2 : -1, second};
  }
}
