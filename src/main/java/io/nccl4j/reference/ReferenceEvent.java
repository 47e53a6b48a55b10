package io.nccl4j.reference;

import io.nccl4j.*;
import java.time.Duration;

/** Under construction. */
public final class ReferenceEvent extends Event {
  ReferenceEvent(int device) {
    super(Platform.HOST, device);
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
