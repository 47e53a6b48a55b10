package io.nccl4j.internal.reference;

import com.sun.management.OperatingSystemMXBean;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceType;
import io.nccl4j.Feature;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.reference.bootstrap.BootstrapKey;
import io.nccl4j.internal.reference.bootstrap.InitBootstrap;
import io.nccl4j.internal.reference.bootstrap.ProcessEndpoint;
import io.nccl4j.internal.reference.bootstrap.RankMap;
import io.nccl4j.internal.reference.rank.RankOptions;
import io.nccl4j.internal.reference.stream.ReferenceEvent;
import io.nccl4j.internal.reference.stream.ReferenceStream;
import io.nccl4j.spi.Allocation;
import io.nccl4j.spi.BackendDriver;
import io.nccl4j.spi.CommunicatorContext;
import io.nccl4j.spi.CommunicatorDriver;
import io.nccl4j.spi.EnqueuedCall;
import io.nccl4j.spi.EventDriver;
import io.nccl4j.spi.StreamContext;
import io.nccl4j.spi.StreamDriver;
import java.lang.foreign.Arena;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.List;
import java.util.stream.IntStream;

/** The driver of the reference backend: creates its communicators, streams, events and buffers. */
public final class ReferenceBackendDriver implements BackendDriver {
  private static final long BUFFER_ALIGNMENT = 64;
  private static final long HOST_MEMORY_BYTES =
      ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class).getTotalMemorySize();

  private final RankOptions options;
  private final List<Device> devices;
  private final List<ProcessEndpoint> endpoints;

  public ReferenceBackendDriver(int devices, RankOptions options, List<ProcessEndpoint> endpoints) {
    this.options = options;
    this.endpoints = endpoints;
    long memory = HOST_MEMORY_BYTES;
    this.devices =
        IntStream.range(0, devices)
            .mapToObj(index -> new Device(index, "reference device, host memory", "", memory))
            .toList();
  }

  public RankOptions options() {
    return options;
  }

  /** Returns the process endpoint of a rank. */
  private ProcessEndpoint endpoint(int rank) {
    return endpoints.get(rank % endpoints.size());
  }

  @Override
  public String name() {
    return "reference";
  }

  @Override
  public DeviceType deviceType() {
    return DeviceType.HOST;
  }

  @Override
  public Duration defaultTimeout() {
    return Duration.ofSeconds(30);
  }

  @Override
  public List<Device> devices() {
    return devices;
  }

  @Override
  public boolean supports(Feature feature) {
    return switch (feature) {
      case SPLIT, SHRINK, GROW, PRE_MUL_SUM, GRAPHS, FLOAT8_DATA, FLOAT8_REDUCTION -> true;
      case SEVERAL_IDS,
          REVOKE,
          SUSPEND,
          PROPERTIES,
          MEMORY_STATISTICS,
          REGISTRATION,
          WINDOWS,
          WINDOW_ADDRESSES,
          ONE_SIDED,
          GROUP_ESTIMATES,
          PARAMETERS ->
          false;
    };
  }

  @Override
  public UniqueId newUniqueId() {
    return InitBootstrap.newId(endpoint(0), InitBootstrap.CONNECT);
  }

  @Override
  public void closeUniqueId(UniqueId id) {
    InitBootstrap.closeId(endpoint(0), id);
  }

  @Override
  public CommunicatorDriver newCommunicator(UniqueId id, CommunicatorContext context) {
    RankMap.checkMost(context.size(), "worldSize");
    return ReferenceCommunicator.joiningById(
        context, options, endpoint(context.rank()), InitBootstrap.CONNECT, id);
  }

  @Override
  public CommunicatorDriver join(UniqueId growId, CommunicatorContext context) {
    RankMap.checkMost(context.size(), "newSize");
    return ReferenceCommunicator.joiningById(
        context, options, endpoint(context.rank()), BootstrapKey.GROW, growId);
  }

  @Override
  public StreamDriver newStream(int device, Stream.Priority priority, StreamContext users) {
    return new ReferenceStream(device, users);
  }

  @Override
  public EventDriver newEvent(int device) {
    return new ReferenceEvent(device);
  }

  @Override
  public Allocation allocate(int device, DataType type, long count) {
    return allocate(type, count);
  }

  @Override
  public Allocation allocatePinned(DataType type, long count) {
    return allocate(type, count);
  }

  private static Allocation allocate(DataType type, long count) {
    long bytes = count * type.bytes();
    if (bytes > HOST_MEMORY_BYTES) {
      throw new OutOfMemoryError(
          "%d elements of %s need %d bytes; the machine has %d"
              .formatted(count, type, bytes, HOST_MEMORY_BYTES));
    }
    // Shared, since all ranks' threads read it; closing it during a read fails that operation.
    @SuppressWarnings("MustBeClosedChecker") // Closed by the allocation.
    Arena arena = Arena.ofShared();
    try {
      return new Allocation(arena.allocate(bytes, BUFFER_ALIGNMENT), arena::close);
    } catch (RuntimeException | Error e) {
      arena.close();
      throw e;
    }
  }

  @Override
  public void launch(List<? extends EnqueuedCall> calls) {
    if (calls.size() == 1) {
      EnqueuedCall only = calls.getFirst();
      ((ReferenceCommunicator) only.communicatorDriver()).launch(only);
    } else {
      GroupLaunch.of(calls).launch();
    }
  }
}
