package io.nccl4j.verification;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.Event;
import io.nccl4j.ReduceOp;
import io.nccl4j.internal.util.CloseAll;
import io.nccl4j.internal.util.Loggers;
import io.nccl4j.spi.BufferMemory;
import io.nccl4j.spi.Contract;
import io.nccl4j.spi.EnqueuedCall;
import io.nccl4j.spi.LaunchListener;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import org.apache.logging.log4j.Logger;

/**
 * Chooses collectives by their numbers, and has their streams copy input and output aside, for one
 * at a time.
 *
 * <p>A rank that is busy passes over collectives that another rank may have taken. It remembers the
 * last one, and offers {@link Sample#NONE} as soon as its stream has passed that, so that the other
 * ranks do not wait for this one until it takes another.
 */
final class Sampler implements LaunchListener, AutoCloseable {
  static final long MOST_BYTES = 16 << 20;

  private static final Logger LOG = Loggers.of(Sampler.class);

  private final int rank;
  private final int oneIn;
  private final Counters counters;
  private final Buffer memory;
  // Behind the copies of the sample, and behind the last collective that was passed over.
  private final Event copied;
  private final Event passed;

  // Guarded by this.
  private Sample held;
  private boolean launched;
  private boolean rejected;
  private long lastPassed;
  private long first;
  private boolean closed;
  private boolean ended;
  private boolean kept;

  private Sampler(
      int rank, int oneIn, Counters counters, Buffer memory, Event copied, Event passed) {
    this.rank = rank;
    this.oneIn = oneIn;
    this.counters = counters;
    this.memory = memory;
    this.copied = copied;
    this.passed = passed;
  }

  /** Allocates the memory for a sample of this rank. */
  static Sampler open(Communicator communicator, int oneIn, Counters counters) {
    List<Runnable> undo = new ArrayList<>();
    try {
      Buffer memory = communicator.newPinnedBuffer(DataType.INT8, MOST_BYTES);
      undo.add(memory::close);
      Event copied = communicator.newEvent();
      undo.add(copied::close);
      Event passed = communicator.newEvent();
      return new Sampler(communicator.rank(), oneIn, counters, memory, copied, passed);
    } catch (Throwable failure) {
      undo.forEach(step -> CloseAll.after(failure, step));
      throw failure;
    }
  }

  /** Scatters the numbers, so that a program with a period does not always have the same chosen. */
  private boolean chooses(EnqueuedCall call, long number) {
    long mixed = number * 0x9E3779B97F4A7C15L;
    mixed = (mixed ^ mixed >>> 32) * 0xD6E8FEB86659FD93L;
    return Long.remainderUnsigned(mixed ^ mixed >>> 32, oneIn) == 0
        && switch (call.operation()) {
          case ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER -> true;
          default -> false;
        };
  }

  @Override
  public synchronized void launching(EnqueuedCall call, long number, boolean graph, boolean alone) {
    if (!chooses(call, number)) {
      return;
    }
    if (ended) {
      counters.skipped(SkipReason.LATE);
    } else if (held != null || number < first) {
      counters.skipped(SkipReason.BUSY);
    } else {
      held = sample(call, number, reason(call, graph, alone));
      launched = false;
      rejected = false;
      if (held.skip() == null) {
        copy(call, call.sendMemory(), held.input());
      }
    }
  }

  private static SkipReason reason(EnqueuedCall call, boolean graph, boolean alone) {
    if (call.sendMemory().byteSize() + call.recvMemory().byteSize() > MOST_BYTES) {
      return SkipReason.TOO_LARGE;
    }
    if (graph || call.streamDriver().capturing()) {
      return SkipReason.CAPTURED;
    }
    boolean standard = call.operator() <= ReduceOp.AVG.code();
    return !alone ? SkipReason.GROUPED : standard ? null : SkipReason.OPERATOR;
  }

  private Sample sample(EnqueuedCall call, long number, SkipReason skip) {
    BufferMemory send = call.sendMemory();
    BufferMemory recv = call.recvMemory();
    boolean copies = skip == null;
    String function = call.operation().function().substring("nccl".length());
    return new Sample(
        number,
        call.operation(),
        send.type(),
        call.count(),
        call.operator(),
        skip,
        copies ? memory.segment().asSlice(0, send.byteSize()) : null,
        copies ? memory.segment().asSlice(MOST_BYTES - recv.byteSize()) : null,
        NcclChoice.await(rank, function, send.address(), recv.address()));
  }

  private void copy(EnqueuedCall call, BufferMemory from, MemorySegment to) {
    try {
      BufferMemory target =
          new BufferMemory(MemorySegment.ofAddress(to.address()), from.type(), from.count());
      call.streamDriver().copy(from, target);
    } catch (RuntimeException failure) {
      // The program's own calls report what is wrong with the device.
      LOG.debug("collective number {} cannot be copied", held.number(), failure);
      held = held.skipped(SkipReason.FAILED);
    }
  }

  @Override
  public synchronized void launched(EnqueuedCall call, long number, Outcome outcome) {
    if (!chooses(call, number) || ended) {
      return;
    }
    if (held != null && !launched && held.number() == number) {
      if (outcome == Outcome.LAUNCHED && held.skip() == null) {
        copy(call, call.recvMemory(), held.output());
      } else if (outcome != Outcome.LAUNCHED) {
        held = held.skipped(SkipReason.FAILED);
      }
      record(call, copied);
      rejected = outcome == Outcome.REJECTED;
      launched = true;
    } else if (number >= first && outcome != Outcome.REJECTED) {
      // An event that is recorded again and again would never be seen complete.
      if (held != Sample.NONE) {
        record(call, passed);
      }
      lastPassed = number;
      offerPassed();
    }
    notifyAll();
  }

  private void record(EnqueuedCall call, Event event) {
    try {
      if (!call.streamDriver().capturing()) {
        call.streamDriver().record(Contract.get().driver(event));
      }
    } catch (RuntimeException failure) {
      LOG.debug("no event can be recorded", failure);
      if (event.equals(copied)) {
        held = held.skipped(SkipReason.FAILED);
      }
    }
  }

  private void offerPassed() {
    if (held == null && lastPassed > 0) {
      held = Sample.NONE;
      launched = true;
      rejected = false;
    }
  }

  /** Waits for the next sample; returns {@link Sample#NONE} once there will be no more. */
  synchronized Sample await() throws InterruptedException {
    while (!closed && (held == null || !launched)) {
      wait();
    }
    return held == null || !launched ? Sample.NONE : held;
  }

  /** Returns the event behind the sample. */
  synchronized Event event() {
    return held == null || held == Sample.NONE ? passed : copied;
  }

  /** Returns whether the launch of the sample was rejected, so that no rank has it. */
  synchronized boolean rejected() {
    return held != null && rejected;
  }

  /** Returns the number of the last collective that was chosen. */
  synchronized long latest() {
    return Math.max(lastPassed, held == null ? 0 : held.number());
  }

  /** Returns whether there will be no sample after this one. */
  synchronized boolean closing() {
    return closed && (held == null || held == Sample.NONE);
  }

  /**
   * Releases the sample.
   *
   * @param next the first number that may be taken
   */
  synchronized void release(long next) {
    if (held != null && held.choice() != null) {
      NcclChoice.forget(held.choice());
    }
    held = null;
    first = Math.max(first, next);
    lastPassed = lastPassed < first ? 0 : lastPassed;
    offerPassed();
  }

  /** Returns whether a sample could be taken now. */
  synchronized boolean idle() {
    return held == null;
  }

  /** Takes no more samples: there are no more launches. */
  synchronized void finish() {
    closed = true;
    notifyAll();
  }

  /** Takes no more samples: a check was not finished in time. */
  synchronized void end() {
    ended = true;
  }

  /** Keeps the memory allocated, since the device may still write it. */
  synchronized void keep() {
    kept = true;
  }

  @Override
  public synchronized void close() {
    release(0);
    CloseAll.all(List.of(copied::close, passed::close, kept ? () -> {} : memory::close));
  }
}
