package io.nccl4j.internal;

import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.LongConsumer;
import java.util.function.LongSupplier;

/**
 * The pauses between two looks at something that another party will change: none at first, for work
 * that is nearly done, then longer and longer ones.
 */
public final class Backoff {
  private static final int SPINS = 200;
  private static final long FIRST_PAUSE_NANOS = 20_000;
  private static final long LONGEST_PAUSE_NANOS = 1_000_000;

  private final String function;
  private final long timeoutNanos;
  private final LongSupplier clock;
  private final LongConsumer park;
  private final long start;
  private int spins;
  private long pause = FIRST_PAUSE_NANOS;

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
   * @throws java.util.concurrent.CancellationException if the thread was interrupted; its interrupt
   *     flag stays set
   */
  public boolean pause() {
    if (spins < SPINS) {
      spins++;
      Thread.onSpinWait();
      return true;
    }
    park.accept(pause);
    if (Thread.currentThread().isInterrupted()) {
      throw Deadline.interrupted(function);
    }
    pause = Math.min(LONGEST_PAUSE_NANOS, pause + pause / 4);
    return clock.getAsLong() - start < timeoutNanos;
  }
}
