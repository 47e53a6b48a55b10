package io.nccl4j.reference;

import java.lang.foreign.MemorySegment;

/**
 * One channel's all-reduce over a binary tree: slices are folded on the way up, a rank's own data
 * first and then its children's, and copied on the way down. Both ways run at the same time.
 */
final class TreeTransfer implements Transfer {
  /** One tree's links of this rank; null where there is no such neighbour. */
  private record Neighbours(
      SendLink toParent,
      ReceiveLink fromParent,
      ReceiveLink fromFirst,
      ReceiveLink fromSecond,
      SendLink toFirst,
      SendLink toSecond) {}

  private final Collective collective;
  private final Neighbours firstTree;
  private final Neighbours secondTree;
  private Neighbours tree;

  private MemorySegment send;
  private MemorySegment recv;
  private int elementBytes;
  private long sliceCount;
  private long up;
  private long down;
  private long end;

  TreeTransfer(Collective collective, int channel) {
    this.collective = collective;
    Member member = collective.member();
    // The trees have links of their own, for one channel may use either.
    this.firstTree = join(Tree.first(member.rank(), member.size()), 2 * channel);
    this.secondTree = join(Tree.second(member.rank(), member.size()), 2 * channel + 1);
  }

  private Neighbours join(Tree place, int channel) {
    int rank = collective.member().rank();
    return new Neighbours(
        link(World.Route.UP, channel, rank, place.parent()),
        link(World.Route.DOWN, channel, place.parent(), rank),
        link(World.Route.UP, channel, place.firstChild(), rank),
        link(World.Route.UP, channel, place.secondChild(), rank),
        link(World.Route.DOWN, channel, rank, place.firstChild()),
        link(World.Route.DOWN, channel, rank, place.secondChild()));
  }

  private MemoryLink link(World.Route route, int channel, int from, int to) {
    return from == Tree.NONE || to == Tree.NONE
        ? null
        : collective.member().world().link(route, channel, from, to);
  }

  void use(boolean first) {
    tree = first ? firstTree : secondTree;
  }

  void start(Call call, long begin, long endOfChannel) {
    send = call.send;
    recv = call.recv;
    elementBytes = call.type.bytes();
    sliceCount = collective.member().world().options().sliceBytes() / elementBytes;
    up = begin;
    down = begin;
    end = endOfChannel;
  }

  @Override
  public boolean advance() {
    boolean moved = false;
    boolean again = true;
    while (again) {
      again = up < end && advanceUp();
      again |= tree.fromParent != null && down < end && advanceDown();
      moved |= again;
    }
    return moved;
  }

  @Override
  public boolean done() {
    return up >= end
        && (tree.fromParent == null || down >= end)
        && drained(tree.toParent)
        && drained(tree.toFirst)
        && drained(tree.toSecond);
  }

  private static boolean drained(SendLink link) {
    return link == null || link.drained();
  }

  private static boolean hasRoom(SendLink link) {
    return link == null || link.hasRoom();
  }

  private boolean ready(ReceiveLink link) {
    return link == null || collective.ready(link);
  }

  private boolean advanceUp() {
    boolean root = tree.toParent == null;
    boolean room = root ? hasRoom(tree.toFirst) && hasRoom(tree.toSecond) : tree.toParent.hasRoom();
    if (!room || !ready(tree.fromFirst) || !ready(tree.fromSecond)) {
      return false;
    }
    long count = Math.min(sliceCount, end - up);
    long offset = up * elementBytes;
    MemorySegment folded = fold(offset, count, root);
    if (root) {
      passDown(offset, count * elementBytes);
    } else {
      tree.toParent.send(folded, offset, count * elementBytes, collective.signature());
    }
    up += count;
    return true;
  }

  /** Folds the children's slices onto this rank's own; returns where the result lies. */
  private MemorySegment fold(long offset, long count, boolean root) {
    Arithmetic arithmetic = collective.arithmetic();
    ReceiveLink first = tree.fromFirst != null ? tree.fromFirst : tree.fromSecond;
    ReceiveLink second = tree.fromFirst != null ? tree.fromSecond : null;
    if (first == null) {
      if (!arithmetic.scales()) {
        return send;
      }
      arithmetic.scale(send, offset, recv, offset, count);
      return recv;
    }
    boolean last = root && second == null;
    arithmetic.fold(send, offset, first.memory(), first.offset(), recv, offset, count, last);
    collective.release(first);
    if (second != null) {
      arithmetic.foldMore(recv, offset, second.memory(), second.offset(), count, root);
      collective.release(second);
    }
    return recv;
  }

  private boolean advanceDown() {
    if (!hasRoom(tree.toFirst) || !hasRoom(tree.toSecond) || !collective.ready(tree.fromParent)) {
      return false;
    }
    long count = Math.min(sliceCount, end - down);
    long offset = down * elementBytes;
    long bytes = count * elementBytes;
    MemorySegment.copy(tree.fromParent.memory(), tree.fromParent.offset(), recv, offset, bytes);
    collective.release(tree.fromParent);
    passDown(offset, bytes);
    down += count;
    return true;
  }

  private void passDown(long offset, long bytes) {
    if (tree.toFirst != null) {
      tree.toFirst.send(recv, offset, bytes, collective.signature());
    }
    if (tree.toSecond != null) {
      tree.toSecond.send(recv, offset, bytes, collective.signature());
    }
  }
}
