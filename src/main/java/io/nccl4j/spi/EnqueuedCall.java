package io.nccl4j.spi;

import io.nccl4j.Operation;

/**
 * A validated call of one rank, as a backend launches it: an {@link Operation}, or a {@link
 * BackendOperation} of this backend, which has its own arguments.
 */
public interface EnqueuedCall {
  /** Returns the driver of the call's communicator. */
  CommunicatorDriver communicatorDriver();

  /** Returns the driver of the stream that orders it; a stream of this rank's device. */
  StreamDriver streamDriver();

  /** Returns the operation that only this backend has, or null. */
  BackendOperation backendOperation();

  /** Returns the operation that every backend has, or null. */
  Operation operation();

  /** Returns the data to send, or null if the operation or the rank sends none. */
  BufferMemory sendMemory();

  /** Returns the destination, or null if the operation or the rank receives nothing. */
  BufferMemory recvMemory();

  /** Returns the count that the C function takes, in elements. */
  long count();

  /** Returns the code of a reduction's operator, or {@link CommunicatorDriver#NO_OPERATOR}. */
  int operator();

  /** Returns the root or the peer, or {@link CommunicatorDriver#NO_PEER}. */
  int peer();
}
