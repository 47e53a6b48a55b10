package io.nccl4j.nccl;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.CudaException;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.Event;
import io.nccl4j.Feature;
import io.nccl4j.GroupCall;
import io.nccl4j.LibraryNotFoundException;
import io.nccl4j.Platform;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.bindings.nccl.ncclUniqueId;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.cuda.CudaDevices;
import io.nccl4j.cuda.CudaEvent;
import io.nccl4j.cuda.CudaMemory;
import io.nccl4j.cuda.CudaStream;
import io.nccl4j.internal.NativeLibrary;
import io.nccl4j.internal.NcclResults;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.IntStream;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/** The backend over {@code libnccl} and {@code libcudart}. */
public final class NcclBackend extends Backend {
  private static final Logger LOG = LogManager.getLogger(NcclBackend.class);

  private final NativeLibrary.Loaded nccl;
  private final NativeLibrary.Loaded cudart;
  private final NcclVersion version;
  private final List<Device> devices;
  private final int[] computeCapabilities;

  private NcclBackend(
      NativeLibrary.Loaded nccl, NativeLibrary.Loaded cudart, List<Device> devices) {
    this.nccl = nccl;
    this.cudart = cudart;
    this.version = new NcclVersion(nccl.version());
    this.devices = devices;
    this.computeCapabilities =
        devices.stream().mapToInt(d -> CudaDevices.computeCapability(d.index())).toArray();
  }

  /**
   * Loads the libraries and looks for devices.
   *
   * @return the backend
   * @throws LibraryNotFoundException if {@code libnccl} 2.18 or later or {@code libcudart} 12 or
   *     later cannot be loaded
   * @throws CudaException if there is no driver, no device, or they do not work
   * @throws IllegalCallerException if nccl4j has no native access
   */
  public static NcclBackend open() {
    NativeLibrary.Loaded cudart = NativeLibrary.CUDART.load();
    List<Device> devices = CudaDevices.list();
    return new NcclBackend(NativeLibrary.NCCL.load(), cudart, devices);
  }

  /**
   * {@return the NCCL backend if a GPU is usable, else nothing, and why it is not is logged}
   *
   * @throws IllegalCallerException if a driver is in sight, or a library was named, but nccl4j has
   *     no native access
   */
  public static Optional<Backend> ifUsable() {
    if (!driverInSight() && !NativeLibrary.NCCL.named() && !NativeLibrary.CUDART.named()) {
      LOG.info("no NVIDIA driver in sight: the reference backend is used");
      return Optional.empty();
    }
    try {
      return Optional.of(open());
    } catch (CudaException | LibraryNotFoundException e) {
      LOG.warn("NCCL is not usable: the reference backend is used. {}", e.getMessage());
      return Optional.empty();
    }
  }

  /**
   * Looks for the driver's own files, which takes no native call and no time where there is no GPU.
   */
  private static boolean driverInSight() {
    return Files.exists(Path.of("/dev/nvidiactl"))
        || Files.exists(Path.of("/proc/driver/nvidia/version"))
        || Files.exists(Path.of("/dev/dxg"));
  }

  @Override
  public String name() {
    return "nccl";
  }

  @Override
  public Platform platform() {
    return Platform.CUDA;
  }

  @Override
  public List<Device> devices() {
    return devices;
  }

  @Override
  public Map<String, String> versions() {
    Map<String, String> versions = new LinkedHashMap<>(libraryVersions());
    versions.put("nccl", version.toString());
    versions.put("nccl library", nccl.path().toString());
    versions.put("cuda runtime", cudaVersion(cudart.version()));
    versions.put("cuda runtime library", cudart.path().toString());
    versions.put("cuda driver", cudaVersion(CudaDevices.driverVersion()));
    return versions;
  }

  @Override
  public boolean supports(Feature feature) {
    boolean released = version.has(FirstRelease.of(feature));
    return feature == Feature.FLOAT8_REDUCTION
        ? released
            && IntStream.of(computeCapabilities)
                .allMatch(c -> c >= NcclCommunicator.FLOAT8_COMPUTE_CAPABILITY)
        : released;
  }

  private static String cudaVersion(int code) {
    return code / 1000 + "." + code % 1000 / 10;
  }

  /** Returns the release of the NCCL library that was loaded. */
  NcclVersion version() {
    return version;
  }

  int computeCapability(int device) {
    return computeCapabilities[device];
  }

  @Override
  protected UniqueId createUniqueId() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment id = ncclUniqueId.allocate(arena);
      NcclResults.check(nccl_h.ncclGetUniqueId(id), "ncclGetUniqueId");
      return UniqueId.of(id.toArray(ValueLayout.JAVA_BYTE));
    }
  }

  @Override
  protected Communicator newCommunicator(
      UniqueId id, int worldSize, int rank, int device, CommunicatorConfig config) {
    return NcclCommunicator.ofRank(this, config, device, id, worldSize, rank);
  }

  @Override
  protected Stream createStream(int device) {
    return CudaStream.create(device);
  }

  @Override
  protected Event createEvent(int device) {
    return CudaEvent.create(device);
  }

  @Override
  protected Buffer createBuffer(int device, DataType type, long count) {
    return CudaMemory.allocate(device, type, count);
  }

  @Override
  protected Buffer createPinnedBuffer(DataType type, long count) {
    return CudaMemory.allocatePinned(type, count);
  }

  @Override
  protected void launchGroup(List<GroupCall> calls) {
    NcclGroup.launch(calls);
  }
}
