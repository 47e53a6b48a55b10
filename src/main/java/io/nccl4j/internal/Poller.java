package io.nccl4j.internal;

import java.util.concurrent.ThreadFactory;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.BooleanSupplier;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * A thread that looks at something from time to time, for as long as there is anything to look at.
 * After a look that fails, with whatever {@link Throwable}, the thread looks again; where it cannot
 * start, the next caller tries again. Those that wait for a look would otherwise wait indefinitely.
 */
public final class Poller {
  private static final Logger LOG = LogManager.getLogger(Poller.class);

  private final ThreadFactory threads;
  private final long periodMillis;
  private final Runnable look;
  private final BooleanSupplier idle;
  private final AtomicBoolean watching = new AtomicBoolean();

  /**
   * Describes a thread that looks; {@link #watch} starts it.
   *
   * @param threads makes the thread
   * @param periodMillis the pause before each look
   * @param look looks once; it must not block
   * @param nothingLeft whether the thread may end
   */
  public Poller(
      ThreadFactory threads, long periodMillis, Runnable look, BooleanSupplier nothingLeft) {
    this.threads = threads;
    this.periodMillis = periodMillis;
    this.look = look;
    this.idle = nothingLeft;
  }

  /** Starts the thread unless one runs; what there is to look at is there before the call. */
  public void watch() {
    if (!watching.compareAndSet(false, true)) {
      return;
    }
    boolean started = false;
    try {
      threads.newThread(this::work).start();
      started = true;
    } finally {
      if (!started) {
        watching.set(false);
      }
    }
  }

  private void work() {
    do {
      try {
        // Nobody has a reference to this thread, so an interrupt is as unexpected as a failure.
        Thread.sleep(periodMillis);
        look.run();
      } catch (Throwable failure) {
        report(failure);
      }
    } while (!over());
  }

  private void report(Throwable failure) {
    try {
      LOG.warn("a look has failed; the next one comes in {} ms", periodMillis, failure);
    } catch (Throwable unreported) {
      // There is no memory for the message; a failure that lasts is reported after the next look.
    }
  }

  /** Returns whether nothing is left; the next caller then starts another thread. */
  private boolean over() {
    if (!idle()) {
      return false;
    }
    watching.set(false);
    // What came between the look and the line above found a watcher and started none.
    return idle() || !watching.compareAndSet(false, true);
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
