package io.nccl4j.reference;

import io.nccl4j.*;
import java.util.Optional;

/** Under construction. */
public final class ReferenceCommunicator extends Communicator {
  ReferenceCommunicator(Backend b, CommunicatorConfig c, int device, int rank, int size) {
    super(b, c, device, rank, size);
  }

  @Override
  protected void connect() {
    throw new UnsupportedOperationException("not built yet");
  }

  @Override
  protected Communicator newSplit(int color, int key, CommunicatorConfig c) {
    throw new UnsupportedOperationException("not built yet");
  }

  @Override
  protected void launch(Operation o, Buffer s, Buffer r, long n, ReduceOp op, int p, Stream st) {
    throw new UnsupportedOperationException("not built yet");
  }

  @Override
  protected void checkFloat8Reduction(DataType type) {
    throw new UnsupportedOperationException("not built yet");
  }

  @Override
  protected int createOperator(DataType type, double scalar) {
    throw new UnsupportedOperationException("not built yet");
  }

  @Override
  protected int createOperator(Buffer scalar) {
    throw new UnsupportedOperationException("not built yet");
  }

  @Override
  protected void destroyOperator(int code) {
    throw new UnsupportedOperationException("not built yet");
  }

  @Override
  protected Optional<NcclException> findAsyncError() {
    throw new UnsupportedOperationException("not built yet");
  }

  @Override
  protected void abortConnection() {
    throw new UnsupportedOperationException("not built yet");
  }

  @Override
  protected void closeConnection() {
    throw new UnsupportedOperationException("not built yet");
  }
}
