package io.nccl4j.internal.util;

import java.time.Duration;
import java.util.concurrent.TimeUnit;

/** A point in time by which a wait ends, on the clock that never jumps. */
public final class Deadline {
  /** Enough for any wait, and far from overflowing the clock: some 146 years. */
  private static final long LONGEST_NANOS = Long.MAX_VALUE / 2;

  private final Duration timeout;
  private final long end;

  private Deadline(Duration timeout) {
    this.timeout = timeout;
    this.end = System.nanoTime() + Math.min(TimeUnit.NANOSECONDS.convert(timeout), LONGEST_NANOS);
  }

  /** Returns the deadline of a wait that starts now. */
  public static Deadline after(Duration timeout) {
    return new Deadline(timeout);
  }

  /** Returns a deadline that comes after so long, or with this one if that is earlier. */
  public Deadline orAfter(Duration sooner) {
    return remainingNanos() > sooner.toNanos()
        ? new Deadline(sooner)
        : new Deadline(Duration.ofNanos(Math.max(1, remainingNanos())));
  }

  /** Returns how long the whole wait may be. */
  public Duration timeout() {
    return timeout;
  }

  /** Returns the rest; 0 or less once the deadline has passed. */
  public long remainingNanos() {
    return end - System.nanoTime();
  }

  /** Returns whether no time is left. */
  public boolean passed() {
    return remainingNanos() <= 0;
  }

  /**
   * Returns the rest, rounded up, as sockets and monitors take it: at least 1, since they take 0
   * for no limit.
   */
  public int remainingMillis() {
    long millis = TimeUnit.NANOSECONDS.toMillis(remainingNanos()) + 1;
    return Math.clamp(millis, 1, Integer.MAX_VALUE);
  }
}
