package io.nccl4j.schedule;

import io.nccl4j.internal.util.Arguments;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.NullMarked;

/**
 * Everything other than the algorithm that all ranks of a communicator must agree on: the division
 * of the elements, and the order of the ranks in rings and trees.
 *
 * <p>An order applies to communicators with as many ranks as it contains. In a communicator of
 * another size, such as one created by a split, the ranks are in rank order.
 */
@NullMarked
public final class Layout {
  private static final int MAX_CHANNELS = 64;
  private static final int SLICE_ALIGNMENT = 512;
  private static final int CELL_ALIGNMENT = 512;
  private static final Layout DEFAULTS =
      new Layout(
          2,
          16 << 10,
          Protocol.SIMPLE,
          Protocol.SIMPLE.chunkBytes(),
          128 << 10,
          List.of(),
          1,
          TreePattern.TREE,
          List.of(),
          0);

  private final int channels;
  private final int cellBytes;
  private final Protocol protocol;
  private final int chunkBytes;
  private final int sliceBytes;
  private final List<List<Integer>> ringOrders;
  private final int ranksPerNode;
  private final TreePattern nodePattern;
  private final List<List<Integer>> treeOrders;
  private final int firstTreeChannels;

  private Layout(
      int channels,
      int cellBytes,
      Protocol protocol,
      int chunkBytes,
      int sliceBytes,
      List<List<Integer>> ringOrders,
      int ranksPerNode,
      TreePattern nodePattern,
      List<List<Integer>> treeOrders,
      int firstTreeChannels) {
    this.channels = Arguments.inRange(channels, "channels", 1, MAX_CHANNELS);
    this.cellBytes = multiple(cellBytes, "cellBytes", CELL_ALIGNMENT);
    this.protocol = Objects.requireNonNull(protocol, "protocol");
    this.chunkBytes = multiple(chunkBytes, "chunkBytes", protocol.grainBytes());
    this.sliceBytes = multiple(sliceBytes, "sliceBytes", SLICE_ALIGNMENT);
    this.ringOrders = copyOrders(ringOrders, "ringOrders");
    this.ranksPerNode = Arguments.inRange(ranksPerNode, "ranksPerNode", 1, Integer.MAX_VALUE);
    this.nodePattern = Objects.requireNonNull(nodePattern, "nodePattern");
    this.treeOrders = copyOrders(treeOrders, "treeOrders");
    this.firstTreeChannels =
        Arguments.inRange(firstTreeChannels, "firstTreeChannels", 0, MAX_CHANNELS);
  }

  private static int multiple(int bytes, String argument, int unit) {
    if (bytes < unit || bytes % unit != 0) {
      throw new IllegalArgumentException(
          argument + " is " + bytes + "; it must be a positive multiple of " + unit);
    }
    return bytes;
  }

  private static List<List<Integer>> copyOrders(List<List<Integer>> orders, String argument) {
    List<List<Integer>> copy = Arguments.copyOf(orders, argument);
    for (int channel = 0; channel < copy.size(); channel++) {
      Arguments.everyRankOnce(copy.get(channel), argument + " of channel " + channel);
    }
    return copy.stream().map(List::copyOf).toList();
  }

  /**
   * {@return the default layout: 2 channels, cells of 16 KiB, {@link Protocol#SIMPLE} with its
   * chunk size, slices of 128 KiB, one rank per node, and all ranks in rank order}
   */
  public static Layout defaults() {
    return DEFAULTS;
  }

  /**
   * {@return the maximum number of channels, from 1 to 64, like {@code NCCL_MAX_CTAS}; little data
   * uses fewer}
   */
  public int channels() {
    return channels;
  }

  /**
   * {@return the unit in which the elements are divided among channels, in bytes, a positive
   * multiple of 512; with {@link Protocol#LL} it is a quarter of this}
   */
  public int cellBytes() {
    return cellBytes;
  }

  /** {@return NCCL's protocol} */
  public Protocol protocol() {
    return protocol;
  }

  /**
   * {@return the size of a ring's chunk in bytes, a positive multiple of {@link
   * Protocol#grainBytes()}}
   */
  public int chunkBytes() {
    return chunkBytes;
  }

  /**
   * {@return the part of a chunk that is transferred at a time, in bytes, a positive multiple of
   * 512; affects speed, never results}
   */
  public int sliceBytes() {
    return sliceBytes;
  }

  /**
   * {@return the ring order of each channel: a list that contains every rank once} If there are
   * fewer lists than channels, they repeat; if there are none, the ranks are in rank order.
   */
  public List<List<Integer>> ringOrders() {
    return ringOrders;
  }

  /**
   * {@return the number of consecutive ranks of the tree's order that form a node; the last node
   * may have fewer}
   */
  public int ranksPerNode() {
    return ranksPerNode;
  }

  /** {@return which ranks of a node are connected to child nodes} */
  public TreePattern nodePattern() {
    return nodePattern;
  }

  /**
   * {@return the tree order of each channel: a list that contains every rank once, the ranks of a
   * node consecutively, beginning with the rank that is connected to the parent node} Lists repeat
   * like those of {@link #ringOrders}; if there are none, the ranks are in rank order.
   */
  public List<List<Integer>> treeOrders() {
    return treeOrders;
  }

  /**
   * {@return the number of consecutive channels with the first tree, which as many channels with
   * the second tree follow, and so on; 0 for half the channels} NCCL determines a number of
   * channels for its first tree, adds as many for the second, and then applies its limit; with a
   * low limit all channels may have the first tree.
   */
  public int firstTreeChannels() {
    return firstTreeChannels;
  }

  /**
   * {@return a copy with another number of channels}
   *
   * @param value the maximum number of channels, from 1 to 64
   * @throws IllegalArgumentException if the value is out of range
   */
  public Layout withChannels(int value) {
    return new Layout(
        value,
        cellBytes,
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
   * {@return a copy with another unit of the division among channels}
   *
   * @param value the unit in bytes, a positive multiple of 512: 16 KiB from NCCL 2.29 on, 8 KiB in
   *     2.23 to 2.28
   * @throws IllegalArgumentException if the value is out of range
   */
  public Layout withCellBytes(int value) {
    return new Layout(
        channels,
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
   * {@return a copy with another protocol and the chunk size of that protocol}
   *
   * @param value the protocol
   */
  public Layout withProtocol(Protocol value) {
    Objects.requireNonNull(value, "protocol");
    return new Layout(
        channels,
        cellBytes,
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
   * {@return a copy with another chunk size, as set by {@code NCCL_BUFFSIZE} and similar variables}
   *
   * @param value the size of a ring's chunk in bytes, a positive multiple of {@link
   *     Protocol#grainBytes()}
   * @throws IllegalArgumentException if the value is out of range
   */
  public Layout withChunkBytes(int value) {
    return new Layout(
        channels,
        cellBytes,
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
   * @throws IllegalArgumentException if the value is out of range
   */
  public Layout withSliceBytes(int value) {
    return new Layout(
        channels,
        cellBytes,
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
   * {@return a copy with other ring orders}
   *
   * @param value the ring order of each channel: a list that contains every rank once
   * @throws IllegalArgumentException if an order does not contain every rank once
   */
  public Layout withRingOrders(List<List<Integer>> value) {
    return new Layout(
        channels,
        cellBytes,
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
   * @param ranks the number of ranks per node; 1 or more
   * @param pattern which ranks of a node are connected to child nodes
   * @throws IllegalArgumentException if the number is out of range
   */
  public Layout withNodes(int ranks, TreePattern pattern) {
    return new Layout(
        channels,
        cellBytes,
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
   * {@return a copy with other tree orders}
   *
   * @param value the tree order of each channel: a list that contains every rank once, the ranks of
   *     a node consecutively
   * @throws IllegalArgumentException if an order does not contain every rank once
   */
  public Layout withTreeOrders(List<List<Integer>> value) {
    return new Layout(
        channels,
        cellBytes,
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
   * {@return a copy with another number of first-tree channels}
   *
   * @param value the number of consecutive channels with the first tree, from 1 to 64, or 0 for
   *     half the channels
   * @throws IllegalArgumentException if the value is out of range
   */
  public Layout withFirstTreeChannels(int value) {
    return new Layout(
        channels,
        cellBytes,
        protocol,
        chunkBytes,
        sliceBytes,
        ringOrders,
        ranksPerNode,
        nodePattern,
        treeOrders,
        value);
  }

  /**
   * {@return the size of a tree's chunk in bytes on a channel} With {@link Protocol#LL128} NCCL
   * halves it while a channel has too few chunks to keep all levels of the tree busy. It affects
   * timing, never the order of the reduction.
   *
   * @param ranks the number of ranks; 1 or more
   * @param channelBytes the size of the channel's elements in bytes; 0 or more
   */
  public int treeChunkBytes(int ranks, long channelBytes) {
    Arguments.atLeast(ranks, "ranks", 1);
    Arguments.atLeast(channelBytes, "channelBytes", 0);
    return protocol.treeChunkBytes(
        chunkBytes, ranks, Math.ceilDiv(ranks, ranksPerNode), channelBytes);
  }

  /**
   * {@return whether a channel uses the first tree}
   *
   * @param channel the channel, from 0
   */
  public boolean firstTree(int channel) {
    int consecutive = firstTreeChannels == 0 ? (channels + 1) / 2 : firstTreeChannels;
    return channel % (2 * consecutive) < consecutive;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Layout that
        && channels == that.channels
        && cellBytes == that.cellBytes
        && protocol == that.protocol
        && chunkBytes == that.chunkBytes
        && sliceBytes == that.sliceBytes
        && ringOrders.equals(that.ringOrders)
        && ranksPerNode == that.ranksPerNode
        && nodePattern == that.nodePattern
        && treeOrders.equals(that.treeOrders)
        && firstTreeChannels == that.firstTreeChannels;
  }

  @Override
  public int hashCode() {
    return Objects.hash(
        channels,
        cellBytes,
        protocol,
        chunkBytes,
        sliceBytes,
        ringOrders,
        ranksPerNode,
        nodePattern,
        treeOrders,
        firstTreeChannels);
  }

  @Override
  public String toString() {
    return ("Layout[channels=%s, cellBytes=%s, protocol=%s, chunkBytes=%s, sliceBytes=%s,"
            + " ringOrders=%s, ranksPerNode=%s, nodePattern=%s, treeOrders=%s,"
            + " firstTreeChannels=%s]")
        .formatted(
            channels,
            cellBytes,
            protocol,
            chunkBytes,
            sliceBytes,
            ringOrders,
            ranksPerNode,
            nodePattern,
            treeOrders,
            firstTreeChannels);
  }
}
