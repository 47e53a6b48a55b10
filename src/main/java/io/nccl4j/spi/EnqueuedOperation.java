package io.nccl4j.spi;

import io.nccl4j.Operation;

/** An operation that every backend has, with the arguments of {@link CommunicatorDriver#launch}. */
public interface EnqueuedOperation extends EnqueuedCall {
  /** Returns the operation. */
  Operation operation();

  /** Returns the data to send, or null. */
  BufferMemory sendMemory();

  /** Returns the destination, or null. */
  BufferMemory recvMemory();

  /** Returns the count that the C function takes, in elements. */
  long count();

  /** Returns the code of the operator, or {@link CommunicatorDriver#NO_OPERATOR}. */
  int operator();

  /** Returns the root or the peer, or {@link io.nccl4j.Communicator#NO_PEER}. */
  int peer();

  @Override
  default BackendOperation backendOperation() {
    return null;
  }
}
