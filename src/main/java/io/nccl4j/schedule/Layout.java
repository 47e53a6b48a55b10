package io.nccl4j.schedule;

import io.nccl4j.internal.util.Arguments;
import java.util.List;
import java.util.Objects;

/**
 * Everything but the algorithm that all ranks of a communicator must agree on before they reduce:
 * into what the elements are divided, and how rings and trees lie over the ranks.
 *
 * <p>Where an order is given for a channel, it holds for communicators of as many ranks as it
 * names. One of another size, such as what a split makes, has its ranks in order.
 *
 * @param channels how many channels there are, from 1 to 64, as {@code NCCL_MAX_CTAS} limits them;
 *     little data uses fewer
 * @param protocol NCCL's protocol
 * @param chunkBytes the size of a ring's chunk, a positive multiple of the protocol's grain
 * @param sliceBytes how much of a chunk is handed over at a time, a positive multiple of 512; it
 *     changes speed, never results
 * @param ringOrders for each channel every rank once, in the order of its ring; where there are
 *     fewer orders than channels, they repeat; none: the ranks in order
 * @param ranksPerNode how many ranks, one after the other in the tree's order, form a node; the
 *     last node may have fewer
 * @param nodePattern which rank of a node speaks to child nodes
 * @param treeOrders for each channel every rank once, those of a node together, the rank that
 *     speaks to the parent node first; repeated like {@code ringOrders}; none: the ranks in order
 * @param firstTreeChannels on how many channels the first tree lies before as many with the second
 *     one follow, and so on; 0 for half the channels. NCCL finds a number of channels for its
 *     trees, lays the second tree on as many more, and then takes no more than it may: with few
 *     channels allowed, all may have the first tree
 */
public record Layout(
    int channels,
    Protocol protocol,
    int chunkBytes,
    int sliceBytes,
    List<List<Integer>> ringOrders,
    int ranksPerNode,
    TreePattern nodePattern,
    List<List<Integer>> treeOrders,
    int firstTreeChannels) {
  private static final int MOST_CHANNELS = 64;
  private static final int SLICE_ALIGNMENT = 512;
  private static final Layout DEFAULTS =
      new Layout(
          2,
          Protocol.SIMPLE,
          Protocol.SIMPLE.chunkBytes(),
          128 << 10,
          List.of(),
          1,
          TreePattern.TREE,
          List.of(),
          0);

  /**
   * Checks the values.
   *
   * @throws IllegalArgumentException if a number is out of its range, or an order has not every
   *     rank once
   */
  public Layout {
    Arguments.inRange(channels, "channels", 1, MOST_CHANNELS);
    Objects.requireNonNull(protocol, "protocol");
    checkMultiple(chunkBytes, "chunkBytes", protocol.grainBytes());
    checkMultiple(sliceBytes, "sliceBytes", SLICE_ALIGNMENT);
    ringOrders = copyOrders(ringOrders, "ringOrders");
    Arguments.inRange(ranksPerNode, "ranksPerNode", 1, Integer.MAX_VALUE);
    Objects.requireNonNull(nodePattern, "nodePattern");
    treeOrders = copyOrders(treeOrders, "treeOrders");
    Arguments.inRange(firstTreeChannels, "firstTreeChannels", 0, MOST_CHANNELS);
  }

  private static void checkMultiple(int bytes, String argument, int unit) {
    if (bytes < unit || bytes % unit != 0) {
      throw new IllegalArgumentException(
          argument + " is " + bytes + "; it must be a positive multiple of " + unit);
    }
  }

  private static List<List<Integer>> copyOrders(List<List<Integer>> orders, String argument) {
    List<List<Integer>> copy = Arguments.copyOf(orders, argument);
    for (int channel = 0; channel < copy.size(); channel++) {
      Permutation.check(copy.get(channel), argument + " of channel " + channel);
    }
    return copy.stream().map(List::copyOf).toList();
  }

  /**
   * {@return 2 channels, {@link Protocol#SIMPLE} with its chunks, slices of 128 KiB, every rank a
   * node, and all ranks in order}
   */
  public static Layout defaults() {
    return DEFAULTS;
  }

  /**
   * {@return a copy with another number of channels}
   *
   * @param value how many channels, from 1 to 64
   * @throws IllegalArgumentException if the value is out of its range
   */
  public Layout withChannels(int value) {
    return new Layout(
        value,
        protocol,
        chunkBytes,
        sliceBytes,
        ringOrders,
        ranksPerNode,
        nodePattern,
        treeOrders,
        firstTreeChannels);
  }

  /**
   * {@return a copy with another protocol and the size of its chunks}
   *
   * @param value the protocol
   */
  public Layout withProtocol(Protocol value) {
    return new Layout(
        channels,
        value,
        value.chunkBytes(),
        sliceBytes,
        ringOrders,
        ranksPerNode,
        nodePattern,
        treeOrders,
        firstTreeChannels);
  }

  /**
   * {@return a copy with another chunk size, as {@code NCCL_BUFFSIZE} and its kin make it}
   *
   * @param value the size of a ring's chunk in bytes, a positive multiple of the protocol's grain
   * @throws IllegalArgumentException if the value is out of its range
   */
  public Layout withChunkBytes(int value) {
    return new Layout(
        channels,
        protocol,
        value,
        sliceBytes,
        ringOrders,
        ranksPerNode,
        nodePattern,
        treeOrders,
        firstTreeChannels);
  }

  /**
   * {@return a copy with another slice size}
   *
   * @param value the size of a slice in bytes, a positive multiple of 512
   * @throws IllegalArgumentException if the value is out of its range
   */
  public Layout withSliceBytes(int value) {
    return new Layout(
        channels,
        protocol,
        chunkBytes,
        value,
        ringOrders,
        ranksPerNode,
        nodePattern,
        treeOrders,
        firstTreeChannels);
  }

  /**
   * {@return a copy with other rings}
   *
   * @param value for each channel every rank once, in the order of its ring
   * @throws IllegalArgumentException if an order has not every rank once
   */
  public Layout withRingOrders(List<List<Integer>> value) {
    return new Layout(
        channels,
        protocol,
        chunkBytes,
        sliceBytes,
        value,
        ranksPerNode,
        nodePattern,
        treeOrders,
        firstTreeChannels);
  }

  /**
   * {@return a copy with other nodes}
   *
   * @param ranks how many ranks form a node; 1 or more
   * @param pattern which rank of a node speaks to child nodes
   * @throws IllegalArgumentException if the number is out of its range
   */
  public Layout withNodes(int ranks, TreePattern pattern) {
    return new Layout(
        channels,
        protocol,
        chunkBytes,
        sliceBytes,
        ringOrders,
        ranks,
        pattern,
        treeOrders,
        firstTreeChannels);
  }

  /**
   * {@return a copy with other places of the ranks in the trees}
   *
   * @param value for each channel every rank once, those of a node together
   * @throws IllegalArgumentException if an order has not every rank once
   */
  public Layout withTreeOrders(List<List<Integer>> value) {
    return new Layout(
        channels,
        protocol,
        chunkBytes,
        sliceBytes,
        ringOrders,
        ranksPerNode,
        nodePattern,
        value,
        firstTreeChannels);
  }

  /**
   * {@return a copy with other channels for the first tree}
   *
   * @param value on how many channels the first tree lies before the second one follows, from 0,
   *     for half of them, to 64
   * @throws IllegalArgumentException if the value is out of its range
   */
  public Layout withFirstTreeChannels(int value) {
    return new Layout(
        channels,
        protocol,
        chunkBytes,
        sliceBytes,
        ringOrders,
        ranksPerNode,
        nodePattern,
        treeOrders,
        value);
  }

  /** {@return the size of a tree's chunk in bytes} */
  public int treeChunkBytes() {
    return protocol.treeChunkBytes(chunkBytes);
  }

  /**
   * {@return the ring of a channel}
   *
   * @param channel the channel, from 0
   * @param ranks the number of ranks; 1 or more
   */
  public Ring ring(int channel, int ranks) {
    List<Integer> order = order(ringOrders, channel, ranks);
    return order.isEmpty() ? Ring.inRankOrder(ranks) : Ring.of(order);
  }

  /**
   * {@return the tree of a channel}
   *
   * @param channel the channel, from 0
   * @param ranks the number of ranks; 1 or more
   */
  public Tree tree(int channel, int ranks) {
    return Tree.ofNodes(
        ranks, ranksPerNode, nodePattern, !firstTree(channel), order(treeOrders, channel, ranks));
  }

  /**
   * {@return whether a channel uses the first tree}
   *
   * @param channel the channel, from 0
   */
  public boolean firstTree(int channel) {
    int run = firstTreeChannels == 0 ? (channels + 1) / 2 : firstTreeChannels;
    return channel % (2 * run) < run;
  }

  private static List<Integer> order(List<List<Integer>> orders, int channel, int ranks) {
    List<Integer> order = orders.isEmpty() ? List.of() : orders.get(channel % orders.size());
    return order.size() == ranks ? order : List.of();
  }
}
