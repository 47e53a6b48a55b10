package io.nccl4j.internal.reference.rank;

import java.util.concurrent.locks.LockSupport;

/**
 * How a worker thread waits for other threads: it yields the processor, and after a while sleeps.
 * {@link #wake} ends a sleep early; a missed wake-up costs one short sleep at most.
 */
public final class IdleStrategy {
  private static final long YIELDING_NANOS = 2_000_000;
  private static final long SHORTEST_SLEEP_NANOS = 50_000;
  private static final long LONGEST_SLEEP_NANOS = 1_000_000;

  private final Thread thread;
  private volatile boolean asleep;
  private boolean idle;
  private long since;
  private long sleep;

  /** Creates the idle strategy of a worker thread. */
  public IdleStrategy(Thread thread) {
    this.thread = thread;
  }

  /** Resets the wait after progress was made. */
  void reset() {
    idle = false;
  }

  /**
   * Waits for a short time.
   *
   * @return the time without progress in nanoseconds; 0 while it is too short to matter
   */
  long pause() {
    long now = System.nanoTime();
    if (!idle) {
      idle = true;
      since = now;
      sleep = SHORTEST_SLEEP_NANOS;
    }
    if (now - since < YIELDING_NANOS) {
      yieldProcessor();
      return 0;
    }
    asleep = true;
    LockSupport.parkNanos(this, sleep);
    asleep = false;
    sleep = Math.min(2 * sleep, LONGEST_SLEEP_NANOS);
    // A pending interrupt would turn every sleep into a spin; workers are not to be interrupted.
    Thread.interrupted();
    return now - since;
  }

  @SuppressWarnings("ThreadPriorityCheck") // Gives the processor to a rank that this one waits for.
  private static void yieldProcessor() {
    Thread.yield();
  }

  /** Ends a sleep, from any thread. */
  void wake() {
    if (asleep) {
      LockSupport.unpark(thread);
    }
  }
}
