package io.nccl4j.internal.reference.stream;

import io.nccl4j.internal.util.Deadline;
import java.time.Duration;

/** One recording of an event: when its stream reached it, and the stream's failure at that time. */
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

  /** Returns the time at which the record was reached, in nanoseconds. */
  long nanos() {
    return nanos;
  }

  /** Returns the stream's failure at the time this record was reached, or null. */
  Throwable failure() {
    return failure;
  }

  /**
   * Waits for this record; returns whether it has been reached.
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
   * Waits indefinitely, and allocates nothing: a stream that continued early, after an interrupt or
   * an {@link OutOfMemoryError}, would read data that is not written yet.
   */
  synchronized void await() {
    while (!reached) {
      try {
        wait();
      } catch (InterruptedException e) {
        // No code interrupts a stream's thread on purpose.
      }
    }
  }
}
