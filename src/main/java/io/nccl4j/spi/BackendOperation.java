package io.nccl4j.spi;

import io.nccl4j.NcclException;

/**
 * An operation that one backend alone has, and that takes part in groups and graphs like any other.
 * The backend checks its arguments before it submits it with {@link Contract#submit}.
 */
public interface BackendOperation {
  /** Returns the name of the method that made the call, for messages. */
  String method();

  /**
   * Looks again at what the operation uses, beside its communicator, its stream and its source.
   *
   * @throws IllegalStateException if any of it has been closed since the call was made
   */
  void checkOpen();

  /**
   * Launches the operation outside any group.
   *
   * @throws NcclException if the library refuses it
   */
  void launch(StreamDriver stream);
}
