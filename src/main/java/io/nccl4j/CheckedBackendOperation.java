package io.nccl4j;

import io.nccl4j.spi.BackendOperation;
import io.nccl4j.spi.CommunicatorDriver;
import io.nccl4j.spi.StreamDriver;

/**
 * A call of an operation that only one backend has. Such operations write only memory of other
 * ranks.
 *
 * @param reads the memory of this rank that the operation reads, or null
 */
record CheckedBackendOperation(
    CommunicatorCore communicator, BackendOperation backendOperation, Buffer reads, Stream stream)
    implements CheckedCall {
  @Override
  public CommunicatorDriver communicatorDriver() {
    return communicator.driver();
  }

  @Override
  public StreamDriver streamDriver() {
    return stream.driver();
  }

  @Override
  public String method() {
    return backendOperation.method();
  }

  @Override
  public Buffer writes() {
    return null;
  }

  @Override
  public CheckedBackendOperation on(Stream other) {
    return new CheckedBackendOperation(communicator, backendOperation, reads, other);
  }

  @Override
  public void checkOperandsOpen() {
    if (reads != null) {
      communicator.checkUsable(reads, "source");
    }
    backendOperation.checkOpen();
  }

  @Override
  public void trackOperands(Stream on) {
    on.trackOperands(reads, null, null);
  }
}
