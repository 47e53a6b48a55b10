package io.nccl4j.internal.reference.collective;

import io.nccl4j.internal.reference.transport.ReceiveLink;
import io.nccl4j.internal.reference.transport.Route;
import io.nccl4j.internal.reference.transport.SendLink;
import io.nccl4j.internal.schedule.Ring;
import io.nccl4j.internal.schedule.RingCursor;
import io.nccl4j.schedule.Layout;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/**
 * One channel of a ring: reduce-scatter, all-gather, or both in succession, which is an all-reduce.
 * A {@link RingCursor} yields the steps. Each slice completes all steps before the next one starts,
 * which keeps it in the caches and gives the same results as processing whole chunks.
 */
final class RingPipeline implements Transfer {
  private final CollectiveRunner collective;
  private final Layout layout;
  private final Ring ring;
  private final RingCursor cursor;
  private final SendLink next;
  private final ReceiveLink previous;
  private MemorySegment scratch;

  private boolean scattered;
  private boolean gathers;
  private MemorySegment send;
  private MemorySegment recv;
  private int elementBytes;
  private long rankCount;

  RingPipeline(CollectiveRunner collective, int channel) {
    this.collective = collective;
    RankContext context = collective.context();
    int rank = context.rank();
    this.layout = context.layout();
    this.ring = Ring.of(layout, channel, context.size());
    this.cursor = new RingCursor(ring.position(rank), ring.size());
    this.next = context.sendLink(Route.RING, channel, ring.next(rank));
    this.previous = context.receiveLink(Route.RING, channel, ring.previous(rank));
  }

  void allReduce(Call call, long begin, long end) {
    start(call, false, false);
    long chunk = layout.chunkBytes() / elementBytes;
    cursor.allReduce(begin, end, chunk, Math.min(chunk, sliceCount()), elementBytes);
  }

  void reduceScatter(Call call) {
    start(call, true, false);
    cursor.reduceScatter(call.count, sliceCount());
  }

  void allGather(Call call) {
    start(call, false, true);
    cursor.allGather(call.count, sliceCount());
  }

  private void start(Call call, boolean scatters, boolean onlyGathers) {
    send = call.send;
    recv = call.recv;
    elementBytes = call.type.bytes();
    rankCount = call.count;
    scattered = scatters;
    gathers = onlyGathers;
  }

  private long sliceCount() {
    return layout.sliceBytes() / elementBytes;
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
      MemorySegment target = partialTarget();
      long targetOffset = partialOffset(offset);
      collective.reduction().scale(send, offset, target, targetOffset, count);
      pass(target, targetOffset, count);
    } else {
      pass(send, offset, count);
    }
  }

  private void foldAndPass(long offset, long count) {
    boolean result = cursor.completes();
    MemorySegment target = result ? recv : partialTarget();
    long targetOffset =
        !result ? partialOffset(offset) : scattered ? cursor.sliceBegin() * elementBytes : offset;
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

  /**
   * Returns the memory for a partial result: the link's own memory if it has any, else the location
   * of the final result if there is one, since nothing else is written there before the partial
   * result has been read.
   */
  private MemorySegment partialTarget() {
    MemorySegment slot = next.claim();
    if (slot != null) {
      return slot;
    }
    if (!scattered) {
      return recv;
    }
    if (scratch == null) {
      int bytes = layout.sliceBytes();
      scratch = Arena.ofAuto().allocate((long) next.slots() * bytes, 64);
    }
    return scratch;
  }

  private long partialOffset(long offset) {
    if (next.claim() != null) {
      return next.claimed();
    }
    // The slot of the next send is free, and so is the memory that belongs to it.
    return scattered ? next.sent() % next.slots() * layout.sliceBytes() : offset;
  }
}
