package io.nccl4j.spi;

import java.time.Duration;

/** The driver of an {@link io.nccl4j.Event}. Any thread may use it. */
public interface EventDriver {
  /** Returns whether the event has not been closed. */
  boolean isOpen();

  /** Returns whether the last recording has completed; true if there is none. */
  boolean isComplete();

  /**
   * Waits until the last recording has completed.
   *
   * @param timeout the maximum time to wait; positive
   * @param late creates the exception that is thrown when the timeout expires
   */
  void await(Duration timeout, TimeoutReport late);

  /** Returns the time between the recording of an open event of the same device and of this one. */
  Duration since(EventDriver start);

  /** Releases the event. Idempotent; enqueued waits stay valid. */
  void close();
}
