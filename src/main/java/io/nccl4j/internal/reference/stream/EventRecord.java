package io.nccl4j.internal.reference.stream;

import io.nccl4j.internal.util.Deadline;
import java.time.Duration;

/** One recording of an event: when its stream came to it, and what had failed there by then. */
public final class EventRecord {
  private volatile boolean reached;
  private long nanos;
  private Throwable failure;

  public synchronized void reach(Throwable failureSoFar) {
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
      wait(deadline.remainingMillis());
    }
    return reached;
  }

  /**
   * Waits for as long as it takes, and allocates nothing: a stream that went on, after an interrupt
   * or for want of memory, would read what is not written yet.
   */
  synchronized void await() {
    while (!reached) {
      try {
        wait();
      } catch (InterruptedException e) {
        // Nobody has reason to interrupt a stream's thread.
      }
    }
  }
}
