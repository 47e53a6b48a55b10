package io.nccl4j.nccl;

import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceType;
import io.nccl4j.Feature;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.bindings.nccl.ncclUniqueId;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.cuda.CudaDevices;
import io.nccl4j.internal.cuda.CudaEventDriver;
import io.nccl4j.internal.cuda.CudaStreamDriver;
import io.nccl4j.internal.cuda.DeviceMemory;
import io.nccl4j.internal.cuda.PinnedMemory;
import io.nccl4j.spi.Allocation;
import io.nccl4j.spi.BackendDriver;
import io.nccl4j.spi.CommunicatorContext;
import io.nccl4j.spi.CommunicatorDriver;
import io.nccl4j.spi.EnqueuedCall;
import io.nccl4j.spi.EventDriver;
import io.nccl4j.spi.StreamContext;
import io.nccl4j.spi.StreamDriver;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.List;
import java.util.stream.IntStream;

/** The driver of a backend that runs on {@code libnccl} and {@code libcudart}. */
final class NcclBackendDriver implements BackendDriver {
  private final NcclVersion version;
  private final List<Device> devices;
  private final int[] computeCapabilities;

  NcclBackendDriver(NcclVersion version, List<Device> devices) {
    this.version = version;
    this.devices = devices;
    this.computeCapabilities =
        devices.stream().mapToInt(d -> CudaDevices.computeCapability(d.index())).toArray();
  }

  @Override
  public String name() {
    return "nccl";
  }

  @Override
  public DeviceType deviceType() {
    return DeviceType.CUDA;
  }

  /**
   * {@inheritDoc} Ten minutes, since a device that waits for other work is not hung: a peer may be
   * late because it compiles or writes a checkpoint.
   */
  @Override
  public Duration defaultTimeout() {
    return Duration.ofMinutes(10);
  }

  @Override
  public List<Device> devices() {
    return devices;
  }

  @Override
  public boolean supports(Feature feature) {
    boolean released = version.has(FeatureVersions.of(feature));
    return feature == Feature.FLOAT8_REDUCTION
        ? released
            && IntStream.of(computeCapabilities)
                .allMatch(c -> c >= NcclCommunicatorDriver.FLOAT8_COMPUTE_CAPABILITY)
        : released;
  }

  /** Returns the release of the NCCL library that was loaded. */
  NcclVersion version() {
    return version;
  }

  @Override
  public UniqueId newUniqueId() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment id = ncclUniqueId.allocate(arena);
      NcclResults.check(nccl_h.ncclGetUniqueId(id), "ncclGetUniqueId");
      return UniqueId.of(id.toArray(ValueLayout.JAVA_BYTE));
    }
  }

  @Override
  public void closeUniqueId(UniqueId id) {
    // NCCL has no such call: its thread waits for the ranks until the process exits.
  }

  @Override
  public CommunicatorDriver newCommunicator(UniqueId id, CommunicatorContext context) {
    CommInit init = new CommInit.Init(id, context.size(), context.rank());
    return driver(NcclConfig.of(context.config()), init, context);
  }

  @Override
  public CommunicatorDriver join(UniqueId growId, CommunicatorContext context) {
    CommInit init = new CommInit.Join(growId, context.size(), context.rank());
    return driver(NcclConfig.of(context.config()), init, context);
  }

  /** Returns the driver of a new communicator with NCCL-specific settings. */
  CommunicatorDriver configured(NcclConfig config, CommInit init, CommunicatorContext context) {
    NativeConfig.checkName(config, version);
    return driver(config, init, context);
  }

  private CommunicatorDriver driver(NcclConfig config, CommInit init, CommunicatorContext context) {
    int capability = computeCapabilities[context.device()];
    return new NcclCommunicatorDriver(version, capability, config, init, context);
  }

  @Override
  public StreamDriver newStream(int device, Stream.Priority priority, StreamContext users) {
    return CudaStreamDriver.create(device, priority, users);
  }

  @Override
  public EventDriver newEvent(int device) {
    return CudaEventDriver.create(device);
  }

  @Override
  public Allocation allocate(int device, DataType type, long count) {
    return DeviceMemory.allocate(device, type.byteSize(count));
  }

  @Override
  public Allocation allocatePinned(DataType type, long count) {
    return PinnedMemory.newBuffer(type.byteSize(count));
  }

  @Override
  public void launch(List<? extends EnqueuedCall> calls) {
    NcclLaunch.launch(calls);
  }
}
