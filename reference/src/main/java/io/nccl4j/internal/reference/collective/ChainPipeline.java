package io.nccl4j.internal.reference.collective;

import io.nccl4j.Operation;
import io.nccl4j.internal.reference.transport.ReceiveLink;
import io.nccl4j.internal.reference.transport.Route;
import io.nccl4j.internal.reference.transport.SendLink;
import io.nccl4j.internal.schedule.Ring;
import java.lang.foreign.MemorySegment;

/**
 * Broadcast and reduce along the ring, pipelined in slices. A broadcast runs from the root to the
 * rank before it, a reduce from the rank after the root to the root.
 */
final class ChainPipeline implements Transfer {
  private final CollectiveRunner collective;
  private final SendLink next;
  private final ReceiveLink previous;
  private final boolean reduces;
  private final boolean receives;
  private final boolean sends;
  private final MemorySegment send;
  private final MemorySegment recv;
  private final int elementBytes;
  private final long count;
  private final long sliceCount;
  private long begin;

  ChainPipeline(CollectiveRunner collective, Call call) {
    this.collective = collective;
    RankContext context = collective.context();
    int rank = context.rank();
    Ring ring = Ring.of(context.layout(), 0, context.size());
    this.next = context.sendLink(Route.RING, 0, ring.next(rank));
    this.previous = context.receiveLink(Route.RING, 0, ring.previous(rank));
    this.reduces = call.operation() == Operation.REDUCE;
    int ranks = ring.size();
    int afterRoot = (ring.position(rank) - ring.position(call.peer()) + ranks) % ranks;
    this.receives = afterRoot != (reduces ? 1 : 0);
    this.sends = afterRoot != (reduces ? 0 : ranks - 1);
    this.send = call.send();
    this.recv = call.recv();
    this.elementBytes = call.type().bytes();
    this.sliceCount = context.layout().sliceBytes() / elementBytes;
    this.count = call.count();
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
    MemorySegment target = sends ? next.claim() : recv;
    long targetOffset = sends ? next.claimed() : offset;
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
}
