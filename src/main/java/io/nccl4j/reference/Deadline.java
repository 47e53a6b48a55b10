package io.nccl4j.reference;

import java.time.Duration;

/** A point in time at which a wait ends. */
final class Deadline {
  private final Duration timeout;
  private final long nanos;

  private Deadline(Duration timeout) {
    this.timeout = timeout;
    this.nanos = System.nanoTime() + nanosOf(timeout);
  }

  static Deadline after(Duration timeout) {
    return new Deadline(timeout);
  }

  /** Returns a duration in nanoseconds, or as many as can be counted with. */
  static long nanosOf(Duration duration) {
    return duration.compareTo(Duration.ofDays(36500)) < 0 ? duration.toNanos() : Long.MAX_VALUE / 4;
  }

  /** Returns how long the wait was to be. */
  Duration timeout() {
    return timeout;
  }

  boolean passed() {
    return nanos - System.nanoTime() <= 0;
  }

  /** Returns what is left in milliseconds for {@code Object.wait}: at least 1, at most as given. */
  long millisLeft(long atMost) {
    return Math.clamp((nanos - System.nanoTime()) / 1_000_000, 1, atMost);
  }
}
