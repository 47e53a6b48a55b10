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
  boolean await(Duration timeout) {
    long deadline = System.nanoTime() + timeout.toNanos();
    return awaitUntil(deadline);
  }

  /** Waits for as long as it takes. */
  void await() {
    while (!await(Duration.ofDays(1))) {
      // A stream may wait for days for work that is still to come.
    }
  }

  private synchronized boolean awaitUntil(long deadline) {
    boolean interrupted = false;
    long left = deadline - System.nanoTime();
    while (!reached && left > 0) {
      try {
        wait(left / 1_000_000, (int) (left % 1_000_000));
      } catch (InterruptedException e) {
        interrupted = true;
      }
      left = deadline - System.nanoTime();
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
    return reached;
  }
}
