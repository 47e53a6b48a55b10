package io.nccl4j.reference;

import io.nccl4j.NcclException;
import java.time.Duration;

/** One recording of an event: when its stream came to it, and what had failed there by then. */
final class Mark {
  private volatile boolean reached;
  private long nanos;
  private NcclException failure;

  synchronized void reach(NcclException failureSoFar) {
    nanos = System.nanoTime();
    failure = failureSoFar;
    reached = true;
    notifyAll();
  }

  boolean reached() {
    return reached;
  }

  /** Returns the time of the mark, which has been reached. */
  long nanos() {
    return nanos;
  }

  /** Returns what had failed on the stream when it came to the mark, or null. */
  NcclException failure() {
    return failure;
  }

  /** Waits; returns whether the mark has been reached. */
  synchronized boolean await(Duration timeout) {
    Deadline deadline = Deadline.after(timeout);
    boolean interrupted = false;
    while (!reached && !deadline.passed()) {
      try {
        wait(deadline.millisLeft(Long.MAX_VALUE));
      } catch (InterruptedException e) {
        // The wait has a deadline of its own: the interrupt is kept and the wait goes on.
        interrupted = true;
      }
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
    return reached;
  }

  /** Waits for as long as it takes. */
  void await() {
    while (!await(Duration.ofDays(1))) {
      // A stream may wait for days for work that is still to come.
    }
  }
}
