package io.nccl4j.internal.reference.stream;

import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Interrupts;
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

  /** Waits indefinitely: a stream that continued early would read data that is not written yet. */
  void await() {
    Interrupts.awaitUninterruptibly(
        () -> {
          synchronized (this) {
            while (!reached) {
              wait();
            }
          }
        });
  }
}
