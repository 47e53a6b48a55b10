package io.nccl4j.internal.util;

import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import org.apache.logging.log4j.Logger;

/**
 * Counts events of one kind, which others can cause as often as they like, so that they are logged
 * once a minute. Thread-safe.
 */
public final class RateLimitedWarning {
  private static final long INTERVAL_NANOS = TimeUnit.MINUTES.toNanos(1);

  private final LongSupplier clock;
  private boolean loggedBefore;
  private long lastLogged;
  private long unlogged;

  /** Makes a counter that has seen nothing. */
  public RateLimitedWarning() {
    this(System::nanoTime);
  }

  RateLimitedWarning(LongSupplier clock) {
    this.clock = clock;
  }

  /**
   * Counts one event, and logs it with their number unless the last warning is less than a minute
   * old.
   *
   * <p>A logger may fail too, for want of memory or of files to open. That must not end the thread
   * that listens, so the warning is then tried again with the next event.
   *
   * @param text what happened; not a pattern, since the first pattern of a process makes Log4j open
   *     files
   */
  public synchronized void log(Logger logger, String text) {
    unlogged++;
    long now = clock.getAsLong();
    if (loggedBefore && now - lastLogged < INTERVAL_NANOS) {
      return;
    }
    try {
      logger.warn(unlogged == 1 ? text : text + " (" + unlogged + " such since the last warning)");
    } catch (RuntimeException | Error e) {
      return;
    }
    loggedBefore = true;
    lastLogged = now;
    unlogged = 0;
  }
}
