package io.nccl4j.internal.reference.collective;

import io.nccl4j.internal.reference.reduce.Reduction;
import io.nccl4j.internal.reference.transport.ReceiveLink;
import io.nccl4j.internal.reference.transport.Route;
import io.nccl4j.internal.reference.transport.SendLink;
import io.nccl4j.internal.schedule.Tree;
import io.nccl4j.schedule.Layout;
import java.lang.foreign.MemorySegment;

/**
 * One channel's all-reduce over a tree. On the way up, a rank folds its own data with the slices of
 * its children, in order; on the way down, slices are copied. Both directions run concurrently.
 */
final class TreeAllReduce implements Transfer {
  private final CollectiveRunner collective;
  // Null at the root.
  private final SendLink toParent;
  private final ReceiveLink fromParent;
  // In folding order.
  private final ReceiveLink[] fromChildren;
  private final SendLink[] toChildren;
  private final MemorySegment send;
  private final MemorySegment recv;
  private final int elementBytes;
  private final long sliceCount;
  private final long end;
  private long up;
  private long down;

  TreeAllReduce(CollectiveRunner collective, int channel, Call call, long begin, long end) {
    this.collective = collective;
    RankContext context = collective.context();
    int rank = context.rank();
    Layout layout = context.layout();
    Tree tree = Tree.of(layout, channel, context.size());
    int parent = tree.parent(rank);
    this.toParent = parent == Tree.NONE ? null : context.sendLink(Route.UP, channel, parent);
    this.fromParent = parent == Tree.NONE ? null : context.receiveLink(Route.DOWN, channel, parent);
    this.fromChildren = new ReceiveLink[tree.children(rank)];
    this.toChildren = new SendLink[fromChildren.length];
    for (int i = 0; i < fromChildren.length; i++) {
      int child = tree.child(rank, i);
      fromChildren[i] = context.receiveLink(Route.UP, channel, child);
      toChildren[i] = context.sendLink(Route.DOWN, channel, child);
    }
    this.send = call.send();
    this.recv = call.recv();
    this.elementBytes = call.type().bytes();
    int chunkBytes = layout.treeChunkBytes(context.size(), (end - begin) * elementBytes);
    this.sliceCount = Math.min(chunkBytes, layout.sliceBytes()) / elementBytes;
    this.up = begin;
    this.down = begin;
    this.end = end;
  }

  @Override
  public boolean advance() {
    boolean moved = false;
    boolean again = true;
    while (again) {
      again = up < end && advanceUp();
      again |= fromParent != null && down < end && advanceDown();
      moved |= again;
    }
    return moved;
  }

  @Override
  public boolean done() {
    return up >= end
        && (fromParent == null || (down >= end && toParent.drained()))
        && childrenDrained();
  }

  private boolean childrenDrained() {
    for (SendLink child : toChildren) {
      if (!child.drained()) {
        return false;
      }
    }
    return true;
  }

  private boolean childrenHaveRoom() {
    for (SendLink child : toChildren) {
      if (!child.hasRoom()) {
        return false;
      }
    }
    return true;
  }

  private boolean childrenReady(long bytes) {
    for (ReceiveLink child : fromChildren) {
      if (!collective.ready(child, bytes)) {
        return false;
      }
    }
    return true;
  }

  private boolean advanceUp() {
    boolean root = toParent == null;
    boolean room = root ? childrenHaveRoom() : toParent.hasRoom();
    long count = Math.min(sliceCount, end - up);
    long bytes = count * elementBytes;
    if (!room || !childrenReady(bytes)) {
      return false;
    }
    long offset = up * elementBytes;
    MemorySegment folded = fold(offset, count, root);
    if (root) {
      passDown(offset, bytes);
    } else {
      toParent.send(folded, offset, bytes, collective.signature());
    }
    up += count;
    return true;
  }

  /** Folds the children's slices onto this rank's data; returns the memory with the result. */
  private MemorySegment fold(long offset, long count, boolean root) {
    Reduction reduction = collective.reduction();
    int children = fromChildren.length;
    if (children == 0) {
      if (!reduction.scales()) {
        return send;
      }
      reduction.scale(send, offset, recv, offset, count);
      return recv;
    }
    for (int i = 0; i < children; i++) {
      ReceiveLink child = fromChildren[i];
      boolean last = root && i == children - 1;
      MemorySegment partial = child.memory();
      if (i == 0) {
        reduction.fold(send, offset, partial, child.offset(), recv, offset, count, last);
      } else {
        reduction.foldMore(recv, offset, partial, child.offset(), count, last);
      }
      collective.release(child);
    }
    return recv;
  }

  private boolean advanceDown() {
    long count = Math.min(sliceCount, end - down);
    long offset = down * elementBytes;
    long bytes = count * elementBytes;
    if (!childrenHaveRoom() || !collective.ready(fromParent, bytes)) {
      return false;
    }
    MemorySegment.copy(fromParent.memory(), fromParent.offset(), recv, offset, bytes);
    collective.release(fromParent);
    passDown(offset, bytes);
    down += count;
    return true;
  }

  private void passDown(long offset, long bytes) {
    for (SendLink child : toChildren) {
      child.send(recv, offset, bytes, collective.signature());
    }
  }
}
