package io.nccl4j.internal.util;

import java.time.Duration;
import java.util.concurrent.TimeUnit;

/** The point in time by which a wait ends, on the monotonic clock. */
public final class Deadline {
  /** About 146 years: enough for any wait, and too short to overflow the clock. */
  private static final long MAX_NANOS = Long.MAX_VALUE / 2;

  private static final Duration WARNING = Duration.ofSeconds(30);

  private final Duration timeout;
  private final long end;

  private Deadline(Duration timeout) {
    this.timeout = timeout;
    this.end = System.nanoTime() + Math.min(TimeUnit.NANOSECONDS.convert(timeout), MAX_NANOS);
  }

  /** Returns the deadline of a wait that starts now. */
  public static Deadline after(Duration timeout) {
    return new Deadline(timeout);
  }

  /** Returns when a wait is logged as a warning: after 30 s, or half of a shorter timeout. */
  public static Duration warning(Duration timeout) {
    Duration half = timeout.dividedBy(2);
    return half.compareTo(WARNING) < 0 ? half : WARNING;
  }

  /** Returns the earlier of this deadline and one after a given time. */
  public Deadline orAfter(Duration other) {
    return remainingNanos() > other.toNanos()
        ? new Deadline(other)
        : new Deadline(Duration.ofNanos(Math.max(1, remainingNanos())));
  }

  /** Returns the length of the whole wait. */
  public Duration timeout() {
    return timeout;
  }

  /** Returns the remaining time; 0 or less once the deadline has passed. */
  public long remainingNanos() {
    return end - System.nanoTime();
  }

  /** Returns the remaining time; zero once the deadline has passed. */
  public Duration remaining() {
    return Duration.ofNanos(Math.max(0, remainingNanos()));
  }

  /** Returns whether no time is left. */
  public boolean passed() {
    return remainingNanos() <= 0;
  }

  /**
   * Returns the remaining time, rounded up, for sockets and monitors. At least 1, since they treat
   * 0 as no limit.
   */
  public int remainingMillis() {
    long millis = TimeUnit.NANOSECONDS.toMillis(remainingNanos()) + 1;
    return Math.clamp(millis, 1, Integer.MAX_VALUE);
  }
}
