package io.nccl4j.internal.reference.collective;

import io.nccl4j.internal.reference.transport.ReceiveLink;
import io.nccl4j.internal.reference.transport.Route;
import io.nccl4j.internal.reference.transport.SendLink;
import io.nccl4j.internal.schedule.Ring;
import io.nccl4j.internal.schedule.RingCursor;
import java.lang.foreign.MemorySegment;

/**
 * One channel of a ring: reduce-scatter, all-gather, or both in succession, which is an all-reduce.
 * A {@link RingCursor} yields the steps. Each slice completes all steps before the next one starts,
 * which keeps it in the caches and gives the same results as processing whole chunks.
 */
final class RingPipeline implements Transfer {
  private final CollectiveRunner collective;
  private final Ring ring;
  private final RingCursor cursor;
  private final SendLink next;
  private final ReceiveLink previous;
  private final MemorySegment send;
  private final MemorySegment recv;
  private final int elementBytes;
  private final long rankCount;
  private final boolean scattered;
  private final boolean gathers;

  private RingPipeline(
      CollectiveRunner collective, int channel, Call call, boolean scattered, boolean gathers) {
    this.collective = collective;
    RankContext context = collective.context();
    int rank = context.rank();
    this.ring = Ring.of(context.layout(), channel, context.size());
    this.cursor = new RingCursor(ring.position(rank), ring.size());
    this.next = context.sendLink(Route.RING, channel, ring.next(rank));
    this.previous = context.receiveLink(Route.RING, channel, ring.previous(rank));
    this.send = call.send();
    this.recv = call.recv();
    this.elementBytes = call.type().bytes();
    this.rankCount = call.count();
    this.scattered = scattered;
    this.gathers = gathers;
  }

  static RingPipeline allReduce(
      CollectiveRunner collective, int channel, Call call, long begin, long end) {
    RingPipeline made = new RingPipeline(collective, channel, call, false, false);
    int elementBytes = made.elementBytes;
    long chunk = collective.context().layout().chunkBytes() / elementBytes;
    made.cursor.allReduce(begin, end, chunk, Math.min(chunk, made.sliceCount()), elementBytes);
    return made;
  }

  static RingPipeline reduceScatter(CollectiveRunner collective, Call call) {
    RingPipeline made = new RingPipeline(collective, 0, call, true, false);
    made.cursor.reduceScatter(call.count(), made.sliceCount());
    return made;
  }

  static RingPipeline allGather(CollectiveRunner collective, Call call) {
    RingPipeline made = new RingPipeline(collective, 0, call, false, true);
    made.cursor.allGather(call.count(), made.sliceCount());
    return made;
  }

  private long sliceCount() {
    return collective.context().layout().sliceBytes() / elementBytes;
  }

  @Override
  public boolean advance() {
    boolean moved = false;
    while (!cursor.done() && advanceStep()) {
      moved = true;
    }
    return moved;
  }

  @Override
  public boolean done() {
    return cursor.done() && next.drained();
  }

  private boolean advanceStep() {
    long count = cursor.count();
    if (count > 0) {
      if (cursor.sends() && !next.hasRoom()) {
        return false;
      }
      if (cursor.receives() && !collective.ready(previous, count * elementBytes)) {
        return false;
      }
      handle(element() * elementBytes, count);
    }
    cursor.advance();
    return true;
  }

  /**
   * Returns the first element of the slice. Except in an all-reduce, the elements of a rank are
   * contiguous.
   */
  private long element() {
    return scattered || gathers
        ? ring.rank(cursor.chunk()) * rankCount + cursor.sliceBegin()
        : cursor.element();
  }

  private void handle(long offset, long count) {
    if (!cursor.receives()) {
      sendOwn(offset, count);
    } else if (cursor.reduces()) {
      foldAndPass(offset, count);
    } else {
      copyAndPass(offset, count);
    }
  }

  private void sendOwn(long offset, long count) {
    if (gathers) {
      long own = cursor.sliceBegin() * elementBytes;
      pass(send, own, count);
      if (send.address() + own != recv.address() + offset) {
        MemorySegment.copy(send, own, recv, offset, count * elementBytes);
      }
    } else if (collective.reduction().scales()) {
      long at = next.claimed();
      collective.reduction().scale(send, offset, next.claim(), at, count);
      pass(next.claim(), at, count);
    } else {
      pass(send, offset, count);
    }
  }

  private void foldAndPass(long offset, long count) {
    boolean result = cursor.completes();
    MemorySegment target = result ? recv : next.claim();
    long targetOffset =
        !result ? next.claimed() : scattered ? cursor.sliceBegin() * elementBytes : offset;
    collective
        .reduction()
        .fold(
            send,
            offset,
            previous.memory(),
            previous.offset(),
            target,
            targetOffset,
            count,
            result);
    collective.release(previous);
    pass(target, targetOffset, count);
  }

  private void copyAndPass(long offset, long count) {
    MemorySegment.copy(previous.memory(), previous.offset(), recv, offset, count * elementBytes);
    collective.release(previous);
    pass(recv, offset, count);
  }

  private void pass(MemorySegment memory, long offset, long count) {
    if (cursor.sends()) {
      next.send(memory, offset, count * elementBytes, collective.signature());
    }
  }
}
