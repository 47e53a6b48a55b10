package io.nccl4j.nccl;

import io.nccl4j.*;
import java.util.List;
import java.util.Map;

/** Under construction. */
public final class NcclBackend extends Backend {
  private NcclBackend() {}

  /** x */
  public static java.util.Optional<Backend> ifUsable() {
    return java.util.Optional.empty();
  }

  /** x */
  public static NcclBackend open() {
    return new NcclBackend();
  }

  @Override
  public String name() {
    throw new UnsupportedOperationException("not built yet");
  }

  @Override
  public Platform platform() {
    return Platform.CUDA;
  }

  @Override
  public List<Device> devices() {
    throw new UnsupportedOperationException("not built yet");
  }

  @Override
  public Map<String, String> versions() {
    throw new UnsupportedOperationException("not built yet");
  }

  @Override
  protected UniqueId createUniqueId() {
    throw new UnsupportedOperationException("not built yet");
  }

  @Override
  protected Communicator newCommunicator(
      UniqueId id, int n, int rank, int device, CommunicatorConfig c) {
    throw new UnsupportedOperationException("not built yet");
  }

  @Override
  protected Stream createStream(int device) {
    throw new UnsupportedOperationException("not built yet");
  }

  @Override
  protected Event createEvent(int device) {
    throw new UnsupportedOperationException("not built yet");
  }

  @Override
  protected Buffer createBuffer(int device, DataType type, long count) {
    throw new UnsupportedOperationException("not built yet");
  }

  @Override
  protected Buffer createPinnedBuffer(DataType type, long count) {
    throw new UnsupportedOperationException("not built yet");
  }

  @Override
  protected void launchGroup(List<GroupCall> calls) {
    throw new UnsupportedOperationException("not built yet");
  }
}
