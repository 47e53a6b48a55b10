package io.nccl4j.internal.util;

import java.util.concurrent.TimeUnit;

/**
 * The pauses between two polls. They grow with the time waited so far, so that the end of a short
 * wait is detected immediately and a long wait costs little.
 */
public final class Backoff {
  /** How much longer than requested a sleep takes. */
  private static final long OVERSLEEP_NANOS = 100_000;

  private final Deadline deadline;
  private final long start = System.nanoTime();
  private final int pausesPerWait;
  private final long shortestNanos;
  private final long longestNanos;

  private Backoff(Deadline deadline, int pausesPerWait, long shortestMillis, long longestMillis) {
    this.deadline = deadline;
    this.pausesPerWait = pausesPerWait;
    this.shortestNanos = TimeUnit.MILLISECONDS.toNanos(shortestMillis);
    this.longestNanos = TimeUnit.MILLISECONDS.toNanos(longestMillis);
  }

  /**
   * Returns pauses between queries of a device or a native library: each is at most 2 % of the time
   * waited so far, and at most 1 ms. Where a sleep would be longer than that, the thread yields
   * instead.
   */
  public static Backoff betweenQueries(Deadline deadline) {
    return new Backoff(deadline, 50, 0, 1);
  }

  /** Returns pauses between polls of a file or a store that other processes write. */
  public static Backoff betweenLooks(Deadline deadline) {
    return new Backoff(deadline, 1, 1, 50);
  }

  /** Returns pauses between attempts to connect to another process. */
  public static Backoff betweenAttempts(Deadline deadline) {
    return new Backoff(deadline, 1, 10, 250);
  }

  /**
   * Pauses, but not beyond the deadline.
   *
   * @return false, without a pause, if the deadline has passed
   * @throws InterruptedException if the thread was interrupted and the pause is a sleep
   */
  @SuppressWarnings("ThreadPriorityCheck") // The awaited work may need the processor.
  public boolean pause() throws InterruptedException {
    long left = deadline.remainingNanos();
    if (left <= 0) {
      return false;
    }
    long sleep = sleepNanos(System.nanoTime() - start);
    if (sleep <= 0) {
      Thread.yield();
    } else {
      TimeUnit.NANOSECONDS.sleep(Math.min(sleep, left));
    }
    return true;
  }

  /** Returns how long to sleep after a given wait; 0 or less if a sleep would take longer. */
  long sleepNanos(long waited) {
    return Math.clamp(waited / pausesPerWait, shortestNanos, longestNanos) - OVERSLEEP_NANOS;
  }
}
