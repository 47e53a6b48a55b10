package io.nccl4j.nccl;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CudaException;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.LibraryNotFoundException;
import io.nccl4j.NcclException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.UniqueId;
import io.nccl4j.UnsupportedNcclVersionException;
import io.nccl4j.bindings.cudart.cudart_h;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.cuda.CudaDevices;
import io.nccl4j.internal.NativeLibrary;
import io.nccl4j.internal.util.Arguments;
import io.nccl4j.spi.Contract;
import java.lang.foreign.SymbolLookup;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletionStage;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.regex.Pattern;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * What only NCCL has of a {@link Backend}, the one over {@code libnccl} and {@code libcudart}: a
 * view, which owns nothing.
 */
public final class NcclBackend {
  private static final Logger LOG = LogManager.getLogger(NcclBackend.class);

  private static final List<String> DRIVER_FILES =
      List.of("/dev/nvidiactl", "/proc/driver/nvidia/version", "/dev/dxg");
  private static final String NO_DRIVER =
      "no NVIDIA driver is installed: neither " + String.join(" nor ", DRIVER_FILES) + " exists";

  // Those that have initializers, or nested classes with such. The functions of the bindings are
  // linked by initializers.
  private static final List<String> INITIALIZED =
      List.of(
          "bindings.cudart.cudaDeviceProp",
          "bindings.cudart.cudart_h",
          "bindings.cudart.cudart_h$shared",
          "bindings.nccl.ncclConfig_v23000",
          "bindings.nccl.ncclSimInfo_v22200",
          "bindings.nccl.ncclUniqueId",
          "bindings.nccl.ncclWaitSignalDesc_t",
          "bindings.nccl.nccl_h",
          "bindings.nccl.nccl_h$shared",
          "internal.DynamicLoader",
          "internal.KeptMemory",
          "internal.NativeEnvironment",
          "internal.NativeLibrary",
          "internal.OpenRanks",
          "internal.PinnedMemory",
          "internal.PrimaryContexts",
          "internal.Membarrier",
          "internal.Poller",
          "internal.cuda.CompletionCallbacks",
          "internal.cuda.CudaStreamDriver",
          "internal.cuda.DeviceMemory",
          "internal.cuda.StagingBuffers",
          "nccl.CallWatch",
          "nccl.CollectiveCalls",
          "nccl.CommunicatorEnd",
          "nccl.CommunicatorHandle",
          "nccl.CtaPolicy",
          "nccl.CollectiveDowncalls",
          "nccl.FeatureVersions",
          "nccl.GraphUsage",
          "nccl.CommInit",
          "nccl.NativeConfig",
          "nccl.NativeCommunicator",
          "nccl.NcclBackend",
          "nccl.NcclConfig",
          "nccl.NcclGroup",
          "nccl.NcclAllocator",
          "nccl.NcclParameters",
          "nccl.BufferRegistration",
          "nccl.ConfigField",
          "nccl.UnsupportedConfigPolicy",
          "nccl.Window",
          "nccl.WindowOption");

  private static final Pattern CALLED_ELSEWHERE =
      Pattern.compile("ncclParam.*|ncclComm(?!GetAsyncError).*");

  private static volatile boolean initialized;

  private final Backend backend;
  private final NcclBackendDriver driver;

  private NcclBackend(Backend backend, NcclBackendDriver driver) {
    this.backend = backend;
    this.driver = driver;
  }

  /**
   * {@return a view of a backend, with what only NCCL has}
   *
   * @param backend a backend over NCCL
   * @throws IllegalArgumentException if it is another one
   */
  public static NcclBackend of(Backend backend) {
    Objects.requireNonNull(backend, "backend");
    if (Contract.get().driver(backend) instanceof NcclBackendDriver driver) {
      return new NcclBackend(backend, driver);
    }
    throw new IllegalArgumentException(
        "backend is " + backend.name() + "; this needs the backend nccl");
  }

  /**
   * Loads the libraries and looks for devices.
   *
   * @return the backend
   * @throws LibraryNotFoundException if {@code libnccl} 2.18 or later or {@code libcudart} 12 or
   *     later cannot be loaded. The message names everything that is missing: either library, the
   *     driver, a device
   * @throws CudaException if both libraries were loaded, but there is no driver or no usable device
   * @throws IllegalCallerException if nccl4j has no native access
   */
  public static Backend open() {
    List<RuntimeException> missing = new ArrayList<>();
    NativeLibrary.Loaded cudart = orMissing(NativeLibrary.CUDART::load, missing);
    NativeLibrary.Loaded nccl = orMissing(NativeLibrary.NCCL::load, missing);
    List<Device> devices = cudart == null ? List.of() : orMissing(CudaDevices::list, missing);
    if (missing.isEmpty()) {
      if (!initialized) {
        Contract.get().initialize(INITIALIZED, NcclBackend::linkable);
        initialized = true;
      }
      return Contract.get()
          .backend(new NcclBackendDriver(new NcclVersion(nccl.version()), devices));
    }
    RuntimeException first = missing.removeFirst();
    List<String> others =
        new ArrayList<>(missing.stream().map(RuntimeException::getMessage).toList());
    if (cudart == null && !driverInstalled()) {
      // libcudart would say so, but it is missing itself.
      others.add(NO_DRIVER);
    }
    throw first instanceof LibraryNotFoundException search && !others.isEmpty()
        ? new LibraryNotFoundException(search, others)
        : first;
  }

  /**
   * Returns false for a class whose initializer links a function that the library lacks, or one
   * that is called on a thread of the library's own with as much stack: linking takes a
   * millisecond.
   */
  private static boolean linkable(Class<?> type) {
    Class<?> functions = type.getDeclaringClass();
    String name = type.getSimpleName();
    if (functions == CollectiveDowncalls.class) {
      name = "nccl" + name;
    } else if (functions != nccl_h.class && functions != cudart_h.class) {
      return true;
    }
    return !CALLED_ELSEWHERE.matcher(name).matches()
        && SymbolLookup.loaderLookup().find(name).isPresent();
  }

  /** Returns what the call returns; or null, and then keeps what it threw. */
  private static <T> T orMissing(Supplier<T> call, List<RuntimeException> missing) {
    try {
      return call.get();
    } catch (LibraryNotFoundException | CudaException e) {
      missing.add(e);
      return null;
    }
  }

  /**
   * {@return the backend if this process can use it, else what the caller opens instead} Where no
   * driver is installed and no library was named, nothing is loaded.
   *
   * @param fallback opens another backend; it gets the reason, which is logged
   * @throws LibraryNotFoundException if a system property or environment variable names a library
   *     that cannot be loaded
   * @throws IllegalCallerException if a driver is installed or a library was named, but nccl4j has
   *     no native access
   */
  public static Backend openOr(Function<String, Backend> fallback) {
    Objects.requireNonNull(fallback, "fallback");
    boolean named = false;
    for (NativeLibrary library : List.of(NativeLibrary.NCCL, NativeLibrary.CUDART)) {
      if (library.named()) {
        library.load();
        named = true;
      }
    }
    if (!named && !driverInstalled()) {
      LOG.info("NCCL cannot be used: {}", NO_DRIVER);
      return fallback.apply(NO_DRIVER);
    }
    try {
      return open();
    } catch (CudaException | LibraryNotFoundException e) {
      LOG.warn("NCCL cannot be used: {}", e.getMessage());
      return fallback.apply(e.getMessage());
    }
  }

  /**
   * Looks for the driver's own files, which takes no native call and no time where there is no GPU.
   */
  private static boolean driverInstalled() {
    return DRIVER_FILES.stream().anyMatch(file -> Files.exists(Path.of(file)));
  }

  /**
   * {@return the versions of all parts that work together} {@link VersionReport#load} needs no GPU.
   */
  public VersionReport versionReport() {
    return VersionReport.load();
  }

  /**
   * {@return the parameters that NCCL runs with} From NCCL 2.30.4 on; {@link NcclParameters#load}
   * gives them without a GPU.
   *
   * @throws UnsupportedNcclVersionException if NCCL is older
   */
  public NcclParameters parameters() {
    return NcclParameters.load();
  }

  /**
   * Allocates device memory that every registration and every window can use, for the caller to
   * close; NCCL may take more than is asked for, 2 MiB or a multiple of it. Its contents are
   * undefined. C: {@code ncclMemAlloc}, {@code ncclMemFree}, from NCCL 2.19 on.
   *
   * @param device the index of the device whose memory it is, from 0
   * @param type the type of the elements
   * @param count how many elements; 0 or more
   * @return the buffer, which owns its memory; its address is a multiple of 4096
   * @throws IllegalArgumentException if device or count is out of its range
   * @throws IllegalStateException if the backend is closed
   * @throws UnsupportedNcclVersionException if NCCL is older
   * @throws NcclException if there is not enough memory on the device
   */
  public Buffer newRegistrableBuffer(int device, DataType type, long count) {
    Contract.get().checkOpen(backend);
    Contract.get().checkDevice(backend, device);
    Objects.requireNonNull(type, "type").byteSize(count);
    driver.version().require("ncclMemAlloc");
    return NcclAllocator.allocate(device, type, count);
  }

  /**
   * Estimates how long a group of collectives would take, without launching it. Every rank
   * estimates the same group, as it would launch it, because NCCL may connect the ranks for it. The
   * estimate is of the last collective alone, not of the whole group, in microseconds or parts of
   * them. C: {@code ncclGroupSimulateEnd}, from NCCL 2.22 on.
   *
   * @param body enqueues collectives, from this thread, on blocking communicators of two ranks or
   *     more; only reductions, broadcasts and all-gathers
   * @return the estimate, or nothing if NCCL makes none
   * @throws IllegalArgumentException if the group is empty, or one that NCCL would launch (of a
   *     non-blocking communicator or of a single rank), or has other operations
   * @throws IllegalStateException if this thread has a group open, if the lambda makes
   *     communicators or closes what its operations use, if a stream is being captured, or another
   *     thread uses a communicator
   * @throws UnsupportedNcclVersionException if NCCL is older
   * @throws NcclTimeoutException if the peers have not come within the longest timeout of the
   *     communicators, which must then be aborted
   * @throws NcclException if the library failed
   * @throws java.util.concurrent.CancellationException if the waiting thread was interrupted, which
   *     it stays
   */
  public Optional<Duration> estimate(Runnable body) {
    Contract.get().checkOpen(backend);
    driver.version().require("ncclGroupSimulateEnd");
    return NcclGroup.estimate(Contract.get().record(body));
  }

  /**
   * Makes NCCL read {@code NCCL_DEBUG} and similar variables again. C: {@code ncclResetDebugInit},
   * from NCCL 2.24 on.
   *
   * @throws UnsupportedNcclVersionException if NCCL is older
   * @deprecated NCCL calls this function no supported part of its interface, which will go; it is
   *     here because {@code nccl.h} declares it. Set the variables before the process starts
   */
  @Deprecated
  public void resetDebugInit() {
    driver.version().require("ncclResetDebugInit");
    nccl_h.ncclResetDebugInit();
  }

  /**
   * Makes one rank's end of a communicator as {@link Backend#newCommunicator} does, with settings
   * that only NCCL has. C: {@code ncclCommInitRankConfig}, from NCCL 2.14 on.
   *
   * @param id the id that all ranks share
   * @param worldSize the number of ranks; 1 or more
   * @param rank this rank, from 0 to {@code worldSize - 1}
   * @param config the configuration
   * @return the communicator, for the caller to close
   * @throws io.nccl4j.UnsupportedNcclVersionException if the library is too old for a setting
   */
  public Communicator newCommunicator(UniqueId id, int worldSize, int rank, NcclConfig config) {
    Objects.requireNonNull(id, "id");
    CommInit init = new CommInit.Init(id, worldSize, rank);
    return connected(unconnected(List.of(id), init, worldSize, rank, config));
  }

  /**
   * Makes one rank's end of a communicator as {@link #newCommunicator(UniqueId, int, int,
   * NcclConfig)} does, from several ids, among which NCCL shares out the work of bringing many
   * ranks together. Where there are as many ids as nodes, say, one rank of each node makes one. C:
   * {@code ncclCommInitRankScalable}, from NCCL 2.23 on.
   *
   * @param ids the ids, the same ones in the same order on all ranks; at least one, at most as many
   *     as ranks
   * @param worldSize the number of ranks; 1 or more
   * @param rank this rank, from 0 to {@code worldSize - 1}
   * @param config the configuration
   * @return the communicator, for the caller to close
   * @throws IllegalArgumentException if an argument is out of its range, or an id is there twice
   * @throws io.nccl4j.UnsupportedNcclVersionException if the library is too old
   */
  public Communicator newCommunicator(
      List<UniqueId> ids, int worldSize, int rank, NcclConfig config) {
    CommInit.InitScalable init = scalable(ids, worldSize, rank);
    return connected(unconnected(init.ids(), init, worldSize, rank, config));
  }

  /**
   * Makes one rank's end of a communicator as {@link #newCommunicator(UniqueId, int, int,
   * NcclConfig)} does, without waiting for the other ranks.
   *
   * @param id the id that all ranks share
   * @param worldSize the number of ranks; 1 or more
   * @param rank this rank, from 0 to {@code worldSize - 1}
   * @param config the configuration
   * @return a stage that completes with the communicator, for the caller to close, or fails as
   *     {@code communicator} does, after the configured timeout at the latest
   * @throws IllegalArgumentException if an argument is out of its range
   * @throws IllegalStateException if the backend is closed, or this thread has a group open
   */
  public CompletionStage<Communicator> communicatorAsync(
      UniqueId id, int worldSize, int rank, NcclConfig config) {
    Objects.requireNonNull(id, "id");
    CommInit init = new CommInit.Init(id, worldSize, rank);
    return Contract.get().connectedAsync(unconnected(List.of(id), init, worldSize, rank, config));
  }

  /**
   * Makes one rank's end of a communicator as {@link #newCommunicator(List, int, int, NcclConfig)}
   * does, without waiting for the other ranks.
   *
   * @param ids the ids, the same ones in the same order on all ranks; at least one, at most as many
   *     as ranks
   * @param worldSize the number of ranks; 1 or more
   * @param rank this rank, from 0 to {@code worldSize - 1}
   * @param config the configuration
   * @return a stage that completes with the communicator, for the caller to close, or fails as
   *     {@code communicator} does, after the configured timeout at the latest
   * @throws IllegalArgumentException if an argument is out of its range, or an id is there twice
   * @throws IllegalStateException if the backend is closed, or this thread has a group open
   */
  public CompletionStage<Communicator> communicatorAsync(
      List<UniqueId> ids, int worldSize, int rank, NcclConfig config) {
    CommInit.InitScalable init = scalable(ids, worldSize, rank);
    return Contract.get().connectedAsync(unconnected(init.ids(), init, worldSize, rank, config));
  }

  /**
   * Makes a new rank's end of a communicator that grows as {@link Backend#join} does, with settings
   * that only NCCL has. C: {@code ncclCommGrow} without a communicator, from NCCL 2.29.2 on.
   *
   * @param growId what {@link Communicator#newGrowId} gave on a rank of the communicator
   * @param newSize the number of ranks, old and new
   * @param rank this rank, from the old number of ranks to {@code newSize - 1}
   * @param config the configuration
   * @return the communicator, for the caller to close
   * @throws io.nccl4j.UnsupportedNcclVersionException if the library is too old
   */
  public Communicator join(UniqueId growId, int newSize, int rank, NcclConfig config) {
    Objects.requireNonNull(growId, "growId");
    return connected(unconnectedJoining(growId, newSize, rank, config));
  }

  /**
   * Makes a new rank's end of a communicator that grows as {@link #join(UniqueId, int, int,
   * NcclConfig)} does, without waiting for the other ranks.
   *
   * @param growId what {@link Communicator#newGrowId} gave on a rank of the communicator
   * @param newSize the number of ranks, old and new
   * @param rank this rank, from the old number of ranks to {@code newSize - 1}
   * @param config the configuration
   * @return a stage that completes with the communicator, for the caller to close, or fails as
   *     {@code join} does, after the configured timeout at the latest
   * @throws IllegalArgumentException if an argument is out of its range
   * @throws IllegalStateException if the backend is closed, or this thread has a group open
   */
  public CompletionStage<Communicator> joinAsync(
      UniqueId growId, int newSize, int rank, NcclConfig config) {
    Objects.requireNonNull(growId, "growId");
    return Contract.get().connectedAsync(unconnectedJoining(growId, newSize, rank, config));
  }

  private static CommInit.InitScalable scalable(List<UniqueId> ids, int worldSize, int rank) {
    List<UniqueId> copy = Arguments.copyOf(ids, "ids");
    if (copy.isEmpty() || copy.size() > worldSize) {
      throw new IllegalArgumentException(
          "ids has "
              + copy.size()
              + " ids; there must be from one to as many as ranks, "
              + worldSize);
    }
    if (Set.copyOf(copy).size() != copy.size()) {
      throw new IllegalArgumentException("ids has an id twice: " + copy);
    }
    return new CommInit.InitScalable(copy, worldSize, rank);
  }

  private Communicator connected(Communicator unconnected) {
    return Contract.get().connected(unconnected, null);
  }

  private Communicator unconnected(
      List<UniqueId> ids, CommInit making, int worldSize, int rank, NcclConfig config) {
    Objects.requireNonNull(config, "config");
    return Contract.get()
        .unconnected(
            backend,
            ids,
            worldSize,
            rank,
            config.common(),
            made -> driver.named(config, making, made));
  }

  private Communicator unconnectedJoining(
      UniqueId growId, int newSize, int rank, NcclConfig config) {
    Objects.requireNonNull(config, "config");
    CommInit init = new CommInit.Join(growId, newSize, rank);
    return Contract.get()
        .unconnectedJoining(
            backend,
            growId,
            newSize,
            rank,
            config.common(),
            made -> driver.named(config, init, made));
  }
}
