package io.nccl4j.reference;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/**
 * One channel's way around the ring: reduce-scatter, all-gather, or one after the other, which is
 * an all-reduce.
 *
 * <p>Step s handles chunk {@code rank - 1 - s} (modulo the number of ranks n). Steps 0 to n - 1
 * reduce: chunk c starts at rank c + 1, every rank folds its own data onto what comes, and rank c
 * has the result. Steps n - 1 to 2n - 2 pass the results on. A reduce-scatter makes the first
 * steps, an all-gather the last, an all-reduce all; the first step of each receives nothing and the
 * last sends nothing. Each slice makes all steps before the next one starts, which keeps it in the
 * caches and gives the same numbers as chunk after chunk would.
 */
final class RingTransfer implements Transfer {
  private final Collective collective;
  private final SendLink next;
  private final ReceiveLink previous;
  private final int rank;
  private final int ranks;
  private MemorySegment scratch;

  private boolean scattered;
  private boolean gathers;
  private MemorySegment send;
  private MemorySegment recv;
  private int elementBytes;
  private int firstStep;
  private int lastStep;
  private long sliceCount;

  private long loopBegin;
  private long end;
  private long mostChunkCount;
  private long chunkCount;
  private long sliceBegin;
  private int step;

  RingTransfer(Collective collective, int channel) {
    this.collective = collective;
    Member member = collective.member();
    this.rank = member.rank();
    this.ranks = member.size();
    World world = member.world();
    this.next = world.link(World.Route.RING, channel, rank, (rank + 1) % ranks);
    this.previous = world.link(World.Route.RING, channel, (rank + ranks - 1) % ranks, rank);
  }

  void allReduce(Call call, long begin, long endOfChannel) {
    int chunkBytes = collective.member().world().options().chunkBytes();
    start(call, begin, endOfChannel, chunkBytes / call.type.bytes(), 0, 2 * ranks - 2);
    scattered = false;
    gathers = false;
  }

  void reduceScatter(Call call) {
    start(call, 0, ranks * call.count, call.count, 0, ranks - 1);
    scattered = true;
    gathers = false;
  }

  void allGather(Call call) {
    start(call, 0, ranks * call.count, call.count, ranks - 1, 2 * ranks - 2);
    scattered = false;
    gathers = true;
  }

  private void start(Call call, long begin, long endOfData, long chunk, int first, int last) {
    send = call.send;
    recv = call.recv;
    elementBytes = call.type.bytes();
    sliceCount = collective.member().world().options().sliceBytes() / elementBytes;
    firstStep = first;
    lastStep = last;
    end = endOfData;
    mostChunkCount = chunk;
    startLoop(begin);
  }

  private void startLoop(long begin) {
    loopBegin = begin;
    sliceBegin = 0;
    step = firstStep;
    long remaining = end - begin;
    chunkCount = mostChunkCount;
    if (remaining < ranks * mostChunkCount) {
      // The last loop shares out what is left; chunks start at multiples of 16 bytes.
      long grain = 16 / elementBytes;
      chunkCount = (remaining + ranks - 1) / ranks;
      chunkCount = (chunkCount + grain - 1) / grain * grain;
    }
  }

  @Override
  public boolean advance() {
    boolean moved = false;
    while (loopBegin < end && advanceStep()) {
      moved = true;
    }
    return moved;
  }

  @Override
  public boolean done() {
    return loopBegin >= end && next.drained();
  }

  private boolean advanceStep() {
    int chunk = rank - 1 - step;
    while (chunk < 0) {
      chunk += ranks;
    }
    long chunkBegin = loopBegin + chunk * chunkCount + sliceBegin;
    long chunkEnd = Math.min(end, loopBegin + (chunk + 1) * chunkCount);
    long count = Math.min(sliceCount, chunkEnd - chunkBegin);
    if (count > 0) {
      if (step != lastStep && !next.hasRoom()) {
        return false;
      }
      if (step != firstStep && !collective.ready(previous)) {
        return false;
      }
      handle(chunkBegin, count);
    }
    goOn();
    return true;
  }

  private void goOn() {
    if (step < lastStep) {
      step++;
      return;
    }
    step = firstStep;
    sliceBegin += sliceCount;
    if (sliceBegin >= chunkCount) {
      startLoop(loopBegin + ranks * chunkCount);
    }
  }

  private void handle(long element, long count) {
    long offset = element * elementBytes;
    if (step == firstStep) {
      sendOwn(offset, count);
    } else if (step < ranks) {
      foldAndPass(offset, count);
    } else {
      copyAndPass(offset, count);
    }
  }

  private void sendOwn(long offset, long count) {
    if (gathers) {
      long own = sliceBegin * elementBytes;
      pass(send, own, count);
      if (send.address() + own != recv.address() + offset) {
        MemorySegment.copy(send, own, recv, offset, count * elementBytes);
      }
    } else if (collective.arithmetic().scales()) {
      MemorySegment target = partialTarget();
      long targetOffset = partialOffset(offset);
      collective.arithmetic().scale(send, offset, target, targetOffset, count);
      pass(target, targetOffset, count);
    } else {
      pass(send, offset, count);
    }
  }

  private void foldAndPass(long offset, long count) {
    boolean result = step == ranks - 1;
    MemorySegment target = result ? recv : partialTarget();
    long targetOffset =
        !result ? partialOffset(offset) : scattered ? sliceBegin * elementBytes : offset;
    collective
        .arithmetic()
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
    if (step != lastStep) {
      next.send(memory, offset, count * elementBytes, collective.signature());
    }
  }

  /**
   * Returns where a partial result goes: into the place of the final one where there is such a
   * place, since nothing else is written there before the partial result has been read.
   */
  private MemorySegment partialTarget() {
    if (!scattered) {
      return recv;
    }
    if (scratch == null) {
      int bytes = collective.member().world().options().sliceBytes();
      scratch = Arena.ofAuto().allocate((long) next.slots() * bytes, 64);
    }
    return scratch;
  }

  private long partialOffset(long offset) {
    // The slot that the next send takes is free, so the memory that goes with it is too.
    return scattered
        ? next.sent() % next.slots() * collective.member().world().options().sliceBytes()
        : offset;
  }
}
