package io.nccl4j.spi;

import java.time.Duration;

/** A backend's part of an {@link io.nccl4j.Event}. Any thread may use one. */
public interface EventDriver {
  /** Returns whether it has not been closed. */
  boolean isOpen();

  /** Returns whether the last recorded mark has been reached; true if there is none. */
  boolean isComplete();

  /**
   * Waits until the last recorded mark has been reached.
   *
   * @param timeout the maximum time to wait; positive
   * @param late makes what is thrown when the time has passed
   */
  void await(Duration timeout, TimeoutReport late);

  /** Returns the time between the mark of an open event of the same device and this one's. */
  Duration since(EventDriver start);

  /** Releases the event. Idempotent; waits that are enqueued stay valid. */
  void close();
}
