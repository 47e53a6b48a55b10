package io.nccl4j.rendezvous;

import java.time.Duration;

/** Waits that grow, so that the first ranks meet at once and the last cost little. */
final class Pause {
  private final Deadline deadline;
  private final Duration longest;
  private Duration next;

  private Pause(Deadline deadline, Duration first, Duration longest) {
    this.deadline = deadline;
    this.next = first;
    this.longest = longest;
  }

  /** Returns pauses between two looks at what others have left somewhere. */
  static Pause betweenLooks(Deadline deadline) {
    return new Pause(deadline, Duration.ofMillis(1), Duration.ofMillis(50));
  }

  /** Returns pauses between two attempts to reach somebody. */
  static Pause betweenAttempts(Deadline deadline) {
    return new Pause(deadline, Duration.ofMillis(10), Duration.ofMillis(250));
  }

  /** Sleeps, but no longer than until the deadline. */
  void make() throws InterruptedException {
    deadline.sleep(next);
    Duration doubled = next.multipliedBy(2);
    next = doubled.compareTo(longest) < 0 ? doubled : longest;
  }
}
