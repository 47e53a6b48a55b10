package io.nccl4j.spi;

/** One checked call that a stream orders and that is launched together with others. */
public interface EnqueuedCall {
  /** Returns the driver of the communicator whose call it is. */
  CommunicatorDriver communicatorDriver();

  /** Returns the driver of the stream that orders it. */
  StreamDriver streamDriver();

  /** Returns what the backend alone has; null where this is an {@link EnqueuedOperation}. */
  BackendOperation backendOperation();
}
