package io.nccl4j.internal;

import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.LongConsumer;
import java.util.function.LongSupplier;

/**
 * The pauses between two looks at something that another party will change. A pause is at most 2 %
 * of the time waited so far, so that the end of what is waited for is noticed in proportion; a
 * sleep cannot be so short at first, and the thread yields instead.
 */
public final class Backoff {
  private static final int PAUSES_PER_WAIT = 50;
  private static final long LONGEST_PAUSE_NANOS = 1_000_000;

  /** How much longer than asked a sleep takes. */
  private static final long OVERSLEEP_NANOS = 100_000;

  private final String function;
  private final long timeoutNanos;
  private final LongSupplier clock;
  private final LongConsumer park;
  private final long start;

  /** Starts a wait of at most the given time. */
  public Backoff(String function, Duration timeout) {
    this(function, timeout, System::nanoTime, LockSupport::parkNanos);
  }

  /**
   * Starts a wait of at most the given time.
   *
   * @param clock the time in nanoseconds
   * @param park sleeps for about so many nanoseconds
   */
  Backoff(String function, Duration timeout, LongSupplier clock, LongConsumer park) {
    this.function = function;
    this.timeoutNanos = TimeUnit.NANOSECONDS.convert(timeout);
    this.clock = clock;
    this.park = park;
    this.start = clock.getAsLong();
  }

  /**
   * Pauses, and returns whether there is time left.
   *
   * @throws java.util.concurrent.CancellationException if the thread was interrupted and the wait
   *     is long enough for sleeps; its interrupt flag stays set
   */
  @SuppressWarnings("ThreadPriorityCheck") // Others may need the processor for what is waited for.
  public boolean pause() {
    long waited = clock.getAsLong() - start;
    if (waited >= timeoutNanos) {
      return false;
    }
    long sleep = Math.min(waited / PAUSES_PER_WAIT, LONGEST_PAUSE_NANOS) - OVERSLEEP_NANOS;
    if (sleep <= 0) {
      Thread.yield();
      return true;
    }
    park.accept(sleep);
    if (Thread.currentThread().isInterrupted()) {
      throw Deadline.interrupted(function);
    }
    return true;
  }
}
