package io.nccl4j.internal.reference.collective;

import io.nccl4j.Operation;
import io.nccl4j.internal.reference.transport.ReceiveLink;
import io.nccl4j.internal.reference.transport.Route;
import io.nccl4j.internal.reference.transport.SendLink;
import io.nccl4j.internal.schedule.Ring;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/**
 * Broadcast and reduce along the ring, pipelined in slices. A broadcast runs from the root to the
 * rank before it, a reduce from the rank after the root to the root.
 */
final class ChainPipeline implements Transfer {
  private final CollectiveRunner collective;
  private final Ring ring;
  private SendLink next;
  private ReceiveLink previous;
  private MemorySegment scratch;

  private boolean reduces;
  private boolean receives;
  private boolean sends;
  private MemorySegment send;
  private MemorySegment recv;
  private int elementBytes;
  private long count;
  private long sliceCount;
  private long begin;

  ChainPipeline(CollectiveRunner collective) {
    this.collective = collective;
    RankContext context = collective.context();
    this.ring = Ring.of(context.layout(), 0, context.size());
  }

  void start(Call call) {
    RankContext context = collective.context();
    int rank = context.rank();
    if (next == null) {
      next = context.sendLink(Route.RING, 0, ring.next(rank));
      previous = context.receiveLink(Route.RING, 0, ring.previous(rank));
    }
    reduces = call.operation == Operation.REDUCE;
    int ranks = ring.size();
    int afterRoot = (ring.position(rank) - ring.position(call.peer) + ranks) % ranks;
    receives = afterRoot != (reduces ? 1 : 0);
    sends = afterRoot != (reduces ? 0 : ranks - 1);
    send = call.send;
    recv = call.recv;
    elementBytes = call.type.bytes();
    sliceCount = context.layout().sliceBytes() / elementBytes;
    count = call.count;
    begin = 0;
  }

  @Override
  public boolean advance() {
    boolean moved = false;
    while (begin < count && advanceSlice()) {
      moved = true;
    }
    return moved;
  }

  @Override
  public boolean done() {
    return begin >= count && next.drained();
  }

  private boolean advanceSlice() {
    long offset = begin * elementBytes;
    long slice = Math.min(sliceCount, count - begin);
    if ((sends && !next.hasRoom())
        || (receives && !collective.ready(previous, slice * elementBytes))) {
      return false;
    }
    if (reduces) {
      reduce(offset, slice);
    } else {
      broadcast(offset, slice * elementBytes);
    }
    begin += slice;
    return true;
  }

  private void broadcast(long offset, long bytes) {
    if (receives) {
      MemorySegment.copy(previous.memory(), previous.offset(), recv, offset, bytes);
      collective.release(previous);
    }
    if (sends) {
      next.send(receives ? recv : send, offset, bytes, collective.signature());
    }
    if (!receives && send.address() != recv.address()) {
      MemorySegment.copy(send, offset, recv, offset, bytes);
    }
  }

  private void reduce(long offset, long slice) {
    long bytes = slice * elementBytes;
    if (!receives && !collective.reduction().scales()) {
      next.send(send, offset, bytes, collective.signature());
      return;
    }
    MemorySegment target = sends ? scratch() : recv;
    long targetOffset = sends ? scratchOffset() : offset;
    if (receives) {
      collective
          .reduction()
          .fold(
              send,
              offset,
              previous.memory(),
              previous.offset(),
              target,
              targetOffset,
              slice,
              !sends);
      collective.release(previous);
    } else {
      collective.reduction().scale(send, offset, target, targetOffset, slice);
    }
    if (sends) {
      next.send(target, targetOffset, bytes, collective.signature());
    }
  }

  private MemorySegment scratch() {
    MemorySegment slot = next.claim();
    if (slot != null) {
      return slot;
    }
    if (scratch == null) {
      int bytes = collective.context().layout().sliceBytes();
      scratch = Arena.ofAuto().allocate((long) next.slots() * bytes, 64);
    }
    return scratch;
  }

  private long scratchOffset() {
    if (next.claim() != null) {
      return next.claimed();
    }
    // The slot of the next send is free, and so is the memory that belongs to it.
    return next.sent() % next.slots() * collective.context().layout().sliceBytes();
  }
}
