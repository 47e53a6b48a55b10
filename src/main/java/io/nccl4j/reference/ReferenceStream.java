package io.nccl4j.reference;

import io.nccl4j.*;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.concurrent.CompletionStage;

/** Under construction. */
public final class ReferenceStream extends Stream {
  ReferenceStream(int device) {
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
  protected CompletionStage<Void> whenComplete() {
    throw new UnsupportedOperationException("not built yet");
  }

  @Override
  protected void mark(Event event) {
    throw new UnsupportedOperationException("not built yet");
  }

  @Override
  protected void follow(Event event) {
    throw new UnsupportedOperationException("not built yet");
  }

  @Override
  protected void upload(MemorySegment source, Buffer target) {
    throw new UnsupportedOperationException("not built yet");
  }

  @Override
  protected void download(Buffer source, MemorySegment target) {
    throw new UnsupportedOperationException("not built yet");
  }

  @Override
  protected void copy(Buffer source, Buffer target) {
    throw new UnsupportedOperationException("not built yet");
  }

  @Override
  protected void fill(Buffer target, byte value) {
    throw new UnsupportedOperationException("not built yet");
  }

  @Override
  public void close() {
    throw new UnsupportedOperationException("not built yet");
  }
}
