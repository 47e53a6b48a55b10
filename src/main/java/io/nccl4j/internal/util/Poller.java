package io.nccl4j.internal.util;

import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.BooleanSupplier;
import org.apache.logging.log4j.Logger;

/**
 * A thread that polls periodically while there is something to poll. If a poll fails with any
 * {@link Throwable}, the thread polls again; if the thread cannot start, the next call of {@link
 * #watch} tries again. Otherwise, those that depend on a poll could wait indefinitely.
 */
public final class Poller {
  /** A longer time between two polls is not counted as waiting: this process did not run. */
  public static final long STOPPED_NANOS = TimeUnit.SECONDS.toNanos(5);

  private static final Logger LOG = Loggers.of(Poller.class);

  private final RateLimitedWarning failures = new RateLimitedWarning();

  private final ThreadFactory threads;
  private final long periodMillis;
  private final Runnable poll;
  private final BooleanSupplier idle;
  private final AtomicBoolean running = new AtomicBoolean();

  /**
   * Creates a poller; {@link #watch} starts its thread.
   *
   * @param threads creates the thread
   * @param periodMillis the pause before each poll
   * @param poll polls once; it must not block
   * @param idle whether there is nothing to poll, so that the thread may end
   */
  public Poller(ThreadFactory threads, long periodMillis, Runnable poll, BooleanSupplier idle) {
    this.threads = threads;
    this.periodMillis = periodMillis;
    this.poll = poll;
    this.idle = idle;
  }

  /** Starts the thread, unless it is running. Called after adding something to poll. */
  public void watch() {
    if (!running.compareAndSet(false, true)) {
      return;
    }
    boolean started = false;
    try {
      threads.newThread(this::work).start();
      started = true;
    } finally {
      if (!started) {
        running.set(false);
      }
    }
  }

  private void work() {
    do {
      try {
        // No other code has a reference to this thread, so an interrupt is an unexpected failure.
        Thread.sleep(periodMillis);
        poll.run();
      } catch (Throwable failure) {
        report(failure);
      }
    } while (!finished());
  }

  private void report(Throwable failure) {
    try {
      failures.log(LOG, "polling failed; the next poll is in " + periodMillis + " ms", failure);
    } catch (Throwable unreported) {
      // Out of memory for the message. If the failure persists, the next poll reports it.
    }
  }

  /** Returns whether the thread ends; the next call of {@link #watch} then starts another one. */
  private boolean finished() {
    if (!idle()) {
      return false;
    }
    running.set(false);
    // Something added before the line above found a running thread and started none.
    return idle() || !running.compareAndSet(false, true);
  }

  private boolean idle() {
    try {
      return idle.getAsBoolean();
    } catch (Throwable failure) {
      report(failure);
      return false;
    }
  }
}
