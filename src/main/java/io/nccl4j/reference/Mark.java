package io.nccl4j.reference;

import java.time.Duration;

/** One recording of an event: when its stream came to it, and what had failed there by then. */
final class Mark {
  private volatile boolean reached;
  private long nanos;
  private Throwable failure;

  synchronized void reach(Throwable failureSoFar) {
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
  Throwable failure() {
    return failure;
  }

  /**
   * Waits; returns whether the mark has been reached.
   *
   * @throws InterruptedException if the thread was interrupted
   */
  synchronized boolean await(Duration timeout) throws InterruptedException {
    Deadline deadline = Deadline.after(timeout);
    while (!reached && !deadline.passed()) {
      wait(deadline.millisLeft(Long.MAX_VALUE));
    }
    return reached;
  }

  /** Waits for as long as it takes, in a thread that nobody has reason to interrupt. */
  synchronized void await() {
    while (!reached) {
      try {
        wait();
      } catch (InterruptedException e) {
        // A stream that went on now would read what is not written yet.
      }
    }
  }
}
