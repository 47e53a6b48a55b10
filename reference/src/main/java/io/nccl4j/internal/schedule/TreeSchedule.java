package io.nccl4j.internal.schedule;

import io.nccl4j.schedule.Layout;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.function.Consumer;
import java.util.stream.IntStream;
import org.jspecify.annotations.NullMarked;

/**
 * The schedule of an all-reduce up and down one tree per channel. {@link Layout#firstTree}
 * determines which channels use the first tree, and which the second.
 */
@NullMarked
public final class TreeSchedule implements Schedule {
  private final int ranks;
  private final long count;
  private final int elementBytes;
  private final long maxSliceCount;
  private final ChannelDivision division;
  private final Tree[] trees;
  private final long[] chunkCounts;

  /**
   * Creates the schedule of one all-reduce.
   *
   * @param layout the layout
   * @param ranks the number of ranks; 1 or more
   * @param count the number of elements; 0 or more
   * @param elementBytes the size of an element in bytes: 1, 2, 4 or 8
   * @throws IllegalArgumentException if a number is out of range
   */
  public TreeSchedule(Layout layout, int ranks, long count, int elementBytes) {
    ChannelDivision.check(ranks, count, elementBytes);
    this.ranks = ranks;
    this.count = count;
    this.elementBytes = elementBytes;
    this.maxSliceCount = layout.sliceBytes() / elementBytes;
    this.division = new ChannelDivision(layout, false, ranks);
    this.division.divide(count, elementBytes);
    this.trees = new Tree[division.channels()];
    this.chunkCounts = new long[trees.length];
    for (int channel = 0; channel < trees.length; channel++) {
      trees[channel] = Tree.of(layout, channel, ranks);
      long bytes = (end(channel) - begin(channel)) * elementBytes;
      chunkCounts[channel] = layout.treeChunkBytes(ranks, bytes) / elementBytes;
    }
  }

  @Override
  public int ranks() {
    return ranks;
  }

  @Override
  public long count() {
    return count;
  }

  @Override
  public int elementBytes() {
    return elementBytes;
  }

  @Override
  public int channels() {
    return trees.length;
  }

  @Override
  public long begin(int channel) {
    return division.begin(channel);
  }

  @Override
  public long end(int channel) {
    return division.end(channel);
  }

  /**
   * {@return the tree of a channel}
   *
   * @param channel the channel, from 0, less than {@link #channels()}
   */
  public Tree tree(int channel) {
    return trees[channel];
  }

  /**
   * {@return the number of elements of a channel's chunks; the last one may have fewer}
   *
   * @param channel the channel, from 0, less than {@link #channels()}
   */
  public long chunkCount(int channel) {
    return chunkCounts[channel];
  }

  private long sliceCount(int channel) {
    return Math.min(chunkCounts[channel], maxSliceCount);
  }

  @Override
  public int hops(int channel) {
    Tree tree = trees[channel];
    return 2 * IntStream.range(0, ranks).map(tree::depth).max().orElse(0);
  }

  @Override
  public void walk(Consumer<Step> visitor) {
    for (int channel = 0; ranks > 1 && channel < channels(); channel++) {
      List<Move> moves = moves(trees[channel]);
      long chunkCount = chunkCounts[channel];
      long sliceCount = sliceCount(channel);
      for (long chunk = begin(channel); chunk < end(channel); chunk += chunkCount) {
        long chunkEnd = Math.min(end(channel), chunk + chunkCount);
        for (long slice = chunk; slice < chunkEnd; slice += sliceCount) {
          long sliceEnd = Math.min(chunkEnd, slice + sliceCount);
          for (Move move : moves) {
            visitor.accept(move.at(channel, position(channel, chunk, slice), slice, sliceEnd));
          }
        }
      }
    }
  }

  private record Position(int chunk, int slice) {}

  private Position position(int channel, long chunk, long slice) {
    return new Position(
        (int) ((chunk - begin(channel)) / chunkCounts[channel]),
        (int) ((slice - chunk) / sliceCount(channel)));
  }

  /** A step of a rank that is the same for every slice. */
  private record Move(int step, int rank, Action action, List<Integer> from, List<Integer> to) {
    Step at(int channel, Position position, long begin, long end) {
      return new Step(
          channel, position.chunk, position.slice, step, rank, action, 0, begin, end, from, to);
    }
  }

  /** Returns the moves up, from the deepest ranks to the root, and then the moves down. */
  private static List<Move> moves(Tree tree) {
    int[] depths = IntStream.range(0, tree.size()).map(tree::depth).toArray();
    int deepest = IntStream.of(depths).max().orElse(0);
    List<Integer> byDepth =
        IntStream.range(0, tree.size())
            .boxed()
            .sorted(Comparator.comparingInt(rank -> depths[rank]))
            .toList();
    List<Move> moves = new ArrayList<>();
    for (int rank : byDepth.reversed()) {
      moves.add(up(tree, rank, deepest - depths[rank]));
    }
    for (int rank : byDepth.subList(1, tree.size())) {
      moves.add(down(tree, rank, deepest + depths[rank]));
    }
    return moves;
  }

  private static Move up(Tree tree, int rank, int step) {
    List<Integer> children = children(tree, rank);
    if (tree.parent(rank) == Tree.NONE) {
      return new Move(step, rank, Action.RECV_REDUCE_COPY_SEND, children, children);
    }
    Action action = children.isEmpty() ? Action.SEND : Action.RECV_REDUCE_SEND;
    return new Move(step, rank, action, children, List.of(tree.parent(rank)));
  }

  private static Move down(Tree tree, int rank, int step) {
    List<Integer> children = children(tree, rank);
    Action action = children.isEmpty() ? Action.RECV : Action.RECV_COPY_SEND;
    return new Move(step, rank, action, List.of(tree.parent(rank)), children);
  }

  private static List<Integer> children(Tree tree, int rank) {
    return IntStream.range(0, tree.children(rank)).map(i -> tree.child(rank, i)).boxed().toList();
  }

  @Override
  public long elementsSent(int channel, int rank) {
    return (end(channel) - begin(channel)) * neighbours(channel, rank);
  }

  @Override
  public long slicesSent(int channel, int rank) {
    long elements = end(channel) - begin(channel);
    long chunkCount = chunkCounts[channel];
    long sliceCount = sliceCount(channel);
    long inWholeChunks = elements / chunkCount * Math.ceilDiv(chunkCount, sliceCount);
    return (inWholeChunks + Math.ceilDiv(elements % chunkCount, sliceCount))
        * neighbours(channel, rank);
  }

  @Override
  public long largestSlice(int channel) {
    return Math.min(end(channel) - begin(channel), sliceCount(channel));
  }

  /** Returns the number of ranks to which a rank sends every element. */
  private int neighbours(int channel, int rank) {
    Tree tree = trees[channel];
    return tree.children(rank) + (tree.parent(rank) == Tree.NONE ? 0 : 1);
  }

  @Override
  public long elementsBetween(int channel, int from, int to) {
    Tree tree = trees[channel];
    boolean joined = tree.parent(from) == to || tree.parent(to) == from;
    return joined ? end(channel) - begin(channel) : 0;
  }
}
