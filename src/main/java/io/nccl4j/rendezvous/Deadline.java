package io.nccl4j.rendezvous;

import java.time.Duration;
import java.util.concurrent.TimeUnit;

/** A point in time by which a wait ends, on the clock that never jumps. */
final class Deadline {
  /** Enough for any wait, and far from overflowing the clock: some 146 years. */
  private static final Duration LONGEST = Duration.ofNanos(Long.MAX_VALUE / 2);

  private final Duration timeout;
  private final long end;

  private Deadline(Duration timeout) {
    this.timeout = timeout.compareTo(LONGEST) < 0 ? timeout : LONGEST;
    this.end = System.nanoTime() + this.timeout.toNanos();
  }

  static Deadline after(Duration timeout) {
    return new Deadline(timeout);
  }

  /** Returns a deadline that comes so soon, or with this one if that is earlier. */
  Deadline orAfter(Duration sooner) {
    return remainingNanos() > sooner.toNanos()
        ? new Deadline(sooner)
        : new Deadline(Duration.ofNanos(Math.max(1, remainingNanos())));
  }

  Duration timeout() {
    return timeout;
  }

  long remainingNanos() {
    return end - System.nanoTime();
  }

  boolean passed() {
    return remainingNanos() <= 0;
  }

  /** Returns the rest, rounded up, as sockets want it: at least 1, for 0 would be for ever. */
  int remainingMillis() {
    long millis = TimeUnit.NANOSECONDS.toMillis(remainingNanos()) + 1;
    return Math.clamp(millis, 1, Integer.MAX_VALUE);
  }

  /** Sleeps so long, or until the deadline if that is earlier. */
  void sleep(Duration pause) throws InterruptedException {
    long nanos = Math.min(pause.toNanos(), remainingNanos());
    if (nanos > 0) {
      TimeUnit.NANOSECONDS.sleep(nanos);
    }
  }
}
