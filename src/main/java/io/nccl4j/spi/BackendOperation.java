package io.nccl4j.spi;

/**
 * An operation that only one backend has, and that can be used in groups and graphs. The backend
 * validates its arguments before it calls {@link Contract#submit}.
 */
public interface BackendOperation {
  /** Returns the name of the method that made the call, for messages. */
  String method();

  /**
   * Checks again the objects that the operation uses, except its communicator, its stream and its
   * source.
   *
   * @throws IllegalStateException if one has been closed since the call was made
   */
  void checkOpen();
}
