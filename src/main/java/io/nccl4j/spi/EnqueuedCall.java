package io.nccl4j.spi;

/** A validated call that a stream orders and that is launched together with others. */
public interface EnqueuedCall {
  /** Returns the driver of the call's communicator. */
  CommunicatorDriver communicatorDriver();

  /** Returns the driver of the stream that orders it. */
  StreamDriver streamDriver();

  /** Returns the backend-specific operation; null for an {@link EnqueuedOperation}. */
  BackendOperation backendOperation();
}
