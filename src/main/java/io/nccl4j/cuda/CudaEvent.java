package io.nccl4j.cuda;

import io.nccl4j.*;
import java.time.Duration;

/** Under construction. */
public final class CudaEvent extends Event {
  CudaEvent(int device) {
    super(Platform.CUDA, device);
  }

  @Override
  public boolean open() {
    throw new UnsupportedOperationException("not built yet");
  }

  @Override
  protected void await(Duration timeout) {
    throw new UnsupportedOperationException("not built yet");
  }

  @Override
  protected boolean poll() {
    throw new UnsupportedOperationException("not built yet");
  }

  @Override
  protected Duration since(Event start) {
    throw new UnsupportedOperationException("not built yet");
  }

  @Override
  public void close() {
    throw new UnsupportedOperationException("not built yet");
  }
}
