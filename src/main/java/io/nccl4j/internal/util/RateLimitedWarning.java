package io.nccl4j.internal.util;

import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import org.apache.logging.log4j.Logger;

/**
 * Logs events of one kind at most once a minute, with their count. For events that remote processes
 * can cause at any rate. Thread-safe.
 */
public final class RateLimitedWarning {
  private static final long INTERVAL_NANOS = TimeUnit.MINUTES.toNanos(1);

  private final LongSupplier clock;
  private boolean loggedBefore;
  private long lastLogged;
  private long unlogged;

  /** Creates a counter. */
  public RateLimitedWarning() {
    this(System::nanoTime);
  }

  RateLimitedWarning(LongSupplier clock) {
    this.clock = clock;
  }

  /**
   * Counts one event, and logs the count unless the last warning is less than a minute old.
   *
   * <p>A logger may fail too, for lack of memory or file descriptors. That must not end the
   * listening thread, so the next event retries the warning.
   *
   * @param text what happened; not a pattern, since the first pattern of a process makes Log4j open
   *     files
   */
  public void log(Logger logger, String text) {
    log(logger, text, null);
  }

  /**
   * As {@link #log(Logger, String)}, with the cause of an event.
   *
   * @param cause its stack trace is logged too, unless it is null
   */
  public synchronized void log(Logger logger, String text, Throwable cause) {
    unlogged++;
    long now = clock.getAsLong();
    if (loggedBefore && now - lastLogged < INTERVAL_NANOS) {
      return;
    }
    try {
      logger.warn(
          unlogged == 1 ? text : text + " (" + unlogged + " since the last warning)", cause);
    } catch (RuntimeException | Error e) {
      return;
    }
    loggedBefore = true;
    lastLogged = now;
    unlogged = 0;
  }
}
