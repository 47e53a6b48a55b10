package io.nccl4j.nccl;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CudaException;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.LibraryNotFoundException;
import io.nccl4j.Nccl4jException;
import io.nccl4j.NcclException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.UniqueId;
import io.nccl4j.UnsupportedNcclVersionException;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.cuda.CudaDevices;
import io.nccl4j.internal.ffm.NativeLibrary;
import io.nccl4j.internal.util.Arguments;
import io.nccl4j.internal.util.Loggers;
import io.nccl4j.spi.Contract;
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
import org.apache.logging.log4j.Logger;
import org.jspecify.annotations.NullMarked;
import org.jspecify.annotations.Nullable;

/**
 * The NCCL-specific operations of a {@link Backend} that runs on {@code libnccl} and {@code
 * libcudart}. An instance is a view of that backend and owns nothing.
 *
 * {@snippet :
 * NcclBackend nccl = NcclBackend.of(backend);
 * NcclConfig config = NcclConfig.defaults().withMaxCtas(8);
 * try (Communicator comm = nccl.newCommunicator(id, worldSize, rank, config);
 *     Stream stream = comm.newStream();
 *     Buffer buffer = nccl.newRegistrableBuffer(comm.device(), DataType.FLOAT32, 1024)) {
 *   comm.allReduce(buffer, buffer, ReduceOp.SUM, stream);
 *   stream.synchronize();
 * }
 * }
 */
@NullMarked
public final class NcclBackend {
  private static final Logger LOG = Loggers.of(NcclBackend.class);

  private static final List<String> DRIVER_FILES =
      List.of("/dev/nvidiactl", "/proc/driver/nvidia/version", "/dev/dxg");
  private static final String NO_DRIVER =
      "no NVIDIA driver is installed: neither " + String.join(" nor ", DRIVER_FILES) + " exists";

  private final Backend backend;
  private final NcclBackendDriver driver;

  private NcclBackend(Backend backend, NcclBackendDriver driver) {
    this.backend = backend;
    this.driver = driver;
  }

  /**
   * {@return a view of a backend with the NCCL-specific operations}
   *
   * @param backend an NCCL backend
   * @throws IllegalArgumentException if it is another backend
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
   * Opens the NCCL backend: loads the libraries and lists the devices.
   *
   * @return the backend
   * @throws LibraryNotFoundException if {@code libnccl} 2.18 or later or {@code libcudart} 12 or
   *     later cannot be loaded. The message lists everything that is missing: either library, the
   *     driver, a device
   * @throws CudaException if both libraries were loaded, but there is no driver or no usable device
   * @throws io.nccl4j.UnsupportedNcclVersionException if a {@linkplain io.nccl4j.plugin plugin} is
   *     installed that {@code libnccl} is too old for
   * @throws IllegalCallerException if nccl4j has no native access
   */
  public static Backend open() {
    List<Nccl4jException> missing = new ArrayList<>();
    Backend backend = open(missing);
    if (backend == null) {
      throw failure(missing);
    }
    return backend;
  }

  /** Opens the backend, or adds what is missing to the list and returns null. */
  private static @Nullable Backend open(List<Nccl4jException> missing) {
    ChoiceProfiler.installIfWanted();
    NativeLibrary.Loaded cudart = orMissing(NativeLibrary.CUDART::load, missing);
    NativeLibrary.Loaded nccl = orMissing(NativeLibrary.NCCL::load, missing);
    @Nullable List<Device> devices =
        cudart == null ? List.of() : orMissing(CudaDevices::list, missing);
    if (cudart != null && nccl != null && devices != null) {
      return Contract.get()
          .backend(new NcclBackendDriver(new NcclVersion(nccl.version()), devices));
    }
    return null;
  }

  /** Returns one exception for everything that is missing. */
  private static Nccl4jException failure(List<Nccl4jException> missing) {
    Nccl4jException first = missing.getFirst();
    List<String> others =
        new ArrayList<>(missing.stream().skip(1).map(Nccl4jException::getMessage).toList());
    if (first instanceof LibraryNotFoundException search
        && search.library().equals("cudart")
        && !driverInstalled()) {
      // libcudart would report this, but it is missing too.
      others.add(NO_DRIVER);
    }
    return first instanceof LibraryNotFoundException search && !others.isEmpty()
        ? new LibraryNotFoundException(search, others)
        : first;
  }

  /** Returns the call's result, or null after adding its exception to the list. */
  private static <T> @Nullable T orMissing(Supplier<T> call, List<Nccl4jException> missing) {
    try {
      return call.get();
    } catch (LibraryNotFoundException | CudaException e) {
      missing.add(e);
      return null;
    }
  }

  /**
   * {@return the NCCL backend if this process can use it, otherwise the result of the fallback} If
   * no driver is installed and no library is named, nothing is loaded.
   *
   * @param fallback opens another backend; its argument is the reason, which is also logged
   * @throws LibraryNotFoundException if a system property or environment variable names a library
   *     that cannot be loaded, or a driver is installed and a library was found that cannot be used
   * @throws IllegalCallerException if a driver is installed or a library is named, but nccl4j has
   *     no native access
   */
  public static Backend openOr(Function<String, Backend> fallback) {
    Objects.requireNonNull(fallback, "fallback");
    ChoiceProfiler.installIfWanted();
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
    List<Nccl4jException> missing = new ArrayList<>();
    Backend backend = open(missing);
    if (backend != null) {
      return backend;
    }
    Nccl4jException failure = failure(missing);
    if (missing.stream().anyMatch(NcclBackend::found)) {
      throw failure;
    }
    LOG.warn("NCCL cannot be used: {}", failure.getMessage());
    return fallback.apply(failure.getMessage());
  }

  /** Returns whether a library was found, but cannot be used. */
  private static boolean found(Nccl4jException missing) {
    return missing instanceof LibraryNotFoundException search
        && search.attempts().stream().anyMatch(LibraryNotFoundException.Attempt::found);
  }

  /** Looks for the driver's files, which needs no native call. */
  private static boolean driverInstalled() {
    return DRIVER_FILES.stream().anyMatch(file -> Files.exists(Path.of(file)));
  }

  /**
   * {@return the versions of nccl4j and of the libraries in use} {@link VersionReport#load} returns
   * the same without a GPU.
   */
  public VersionReport versionReport() {
    return VersionReport.load();
  }

  /**
   * {@return NCCL's effective parameters} From NCCL 2.30.4 on. {@link NcclParameters#load} returns
   * the same without a GPU.
   *
   * @throws UnsupportedNcclVersionException if NCCL is older
   */
  public NcclParameters parameters() {
    return NcclParameters.load();
  }

  /**
   * Allocates device memory that can be registered and used in windows. NCCL may round the size up
   * to a multiple of 2 MiB. The contents are undefined. C: {@code ncclMemAlloc}, {@code
   * ncclMemFree}, from NCCL 2.19 on.
   *
   * @param device the index of the device to allocate on, from 0
   * @param type the element type
   * @param count the number of elements; 0 or more
   * @return the buffer, which owns its memory, for the caller to close; its address is a multiple
   *     of 4096
   * @throws IllegalArgumentException if device or count is out of range
   * @throws IllegalStateException if the backend is closed, or this thread is capturing a graph
   * @throws UnsupportedNcclVersionException if NCCL is older
   * @throws NcclException if there is not enough memory on the device
   */
  public Buffer newRegistrableBuffer(int device, DataType type, long count) {
    Contract.get().checkMakes(backend, "allocating");
    Contract.get().checkDevice(backend, device);
    Objects.requireNonNull(type, "type").byteSize(count);
    driver.version().require("ncclMemAlloc");
    return NcclAllocator.allocate(device, type, count);
  }

  /**
   * Estimates the duration of a group of collectives without launching it. Every rank must estimate
   * the same group, because NCCL may connect the ranks first. The estimate covers the last
   * collective only, not the whole group; NCCL reports it in microseconds and fractions of them. C:
   * {@code ncclGroupSimulateEnd}, from NCCL 2.22 on.
   *
   * @param body enqueues all-reduces, reduces, reduce-scatters, broadcasts and all-gathers from
   *     this thread, on blocking communicators of two or more ranks
   * @return the estimate, or empty if NCCL makes none
   * @throws IllegalArgumentException if the group is empty, has other operations, or NCCL would
   *     launch it (it has a non-blocking communicator, or one of a single rank)
   * @throws IllegalStateException if this thread has a group open, if the body creates
   *     communicators or closes anything that its operations use, if a stream is being captured, or
   *     if another thread is using a communicator
   * @throws UnsupportedNcclVersionException if NCCL is older
   * @throws NcclTimeoutException if the peers did not join within the longest timeout of the
   *     communicators, which must then be aborted
   * @throws NcclException if the library failed
   * @throws java.util.concurrent.CancellationException if the waiting thread was interrupted; its
   *     interrupt status stays set
   */
  public Optional<Duration> estimate(Runnable body) {
    Contract.get().checkOpen(backend);
    driver.version().require("ncclGroupSimulateEnd");
    return GroupEstimate.estimate(Contract.get().record(body));
  }

  /**
   * Makes NCCL read {@code NCCL_DEBUG} and similar variables again. C: {@code ncclResetDebugInit},
   * from NCCL 2.24 on.
   *
   * @throws UnsupportedNcclVersionException if NCCL is older
   * @deprecated NCCL documents this function as unsupported and to be removed. Set the variables
   *     before the process starts instead
   */
  @Deprecated
  public void resetDebugInit() {
    driver.version().require("ncclResetDebugInit");
    nccl_h.ncclResetDebugInit();
  }

  /**
   * Creates this rank's communicator like {@link Backend#newCommunicator}, with NCCL-specific
   * settings. C: {@code ncclCommInitRankConfig}, from NCCL 2.14 on.
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
   * Creates this rank's communicator like {@link #newCommunicator(UniqueId, int, int, NcclConfig)},
   * from several ids. NCCL distributes the bootstrap of many ranks over them; for example, one rank
   * of each node creates an id. C: {@code ncclCommInitRankScalable}, from NCCL 2.23 on.
   *
   * @param ids the ids, the same in the same order on all ranks; from 1 to {@code worldSize} of
   *     them
   * @param worldSize the number of ranks; 1 or more
   * @param rank this rank, from 0 to {@code worldSize - 1}
   * @param config the configuration
   * @return the communicator, for the caller to close
   * @throws IllegalArgumentException if an argument is out of range, or an id is repeated
   * @throws io.nccl4j.UnsupportedNcclVersionException if the library is too old
   */
  public Communicator newCommunicator(
      List<UniqueId> ids, int worldSize, int rank, NcclConfig config) {
    CommInit.InitScalable init = scalable(ids, worldSize, rank);
    return connected(unconnected(init.ids(), init, worldSize, rank, config));
  }

  /**
   * Creates this rank's communicator like {@link #newCommunicator(UniqueId, int, int, NcclConfig)},
   * without waiting for the other ranks.
   *
   * @param id the id that all ranks share
   * @param worldSize the number of ranks; 1 or more
   * @param rank this rank, from 0 to {@code worldSize - 1}
   * @param config the configuration
   * @return a stage that completes with the communicator, for the caller to close, or fails as
   *     {@code newCommunicator} does, after the configured timeout at the latest
   * @throws IllegalArgumentException if an argument is out of range
   * @throws IllegalStateException if the backend is closed, or this thread has a group open
   */
  public CompletionStage<Communicator> newCommunicatorAsync(
      UniqueId id, int worldSize, int rank, NcclConfig config) {
    Objects.requireNonNull(id, "id");
    CommInit init = new CommInit.Init(id, worldSize, rank);
    return Contract.get().connectedAsync(unconnected(List.of(id), init, worldSize, rank, config));
  }

  /**
   * Creates this rank's communicator like {@link #newCommunicator(List, int, int, NcclConfig)},
   * without waiting for the other ranks.
   *
   * @param ids the ids, the same in the same order on all ranks; from 1 to {@code worldSize} of
   *     them
   * @param worldSize the number of ranks; 1 or more
   * @param rank this rank, from 0 to {@code worldSize - 1}
   * @param config the configuration
   * @return a stage that completes with the communicator, for the caller to close, or fails as
   *     {@code newCommunicator} does, after the configured timeout at the latest
   * @throws IllegalArgumentException if an argument is out of range, or an id is repeated
   * @throws IllegalStateException if the backend is closed, or this thread has a group open
   */
  public CompletionStage<Communicator> newCommunicatorAsync(
      List<UniqueId> ids, int worldSize, int rank, NcclConfig config) {
    CommInit.InitScalable init = scalable(ids, worldSize, rank);
    return Contract.get().connectedAsync(unconnected(init.ids(), init, worldSize, rank, config));
  }

  /**
   * Joins a growing communicator as a new rank like {@link Backend#join}, with NCCL-specific
   * settings. C: {@code ncclCommGrow} without a communicator, from NCCL 2.29.2 on.
   *
   * @param growId the id that {@link Communicator#newGrowId} returned on a rank of the communicator
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
   * Joins a growing communicator like {@link #join(UniqueId, int, int, NcclConfig)}, without
   * waiting for the other ranks.
   *
   * @param growId the id that {@link Communicator#newGrowId} returned on a rank of the communicator
   * @param newSize the number of ranks, old and new
   * @param rank this rank, from the old number of ranks to {@code newSize - 1}
   * @param config the configuration
   * @return a stage that completes with the communicator, for the caller to close, or fails as
   *     {@code join} does, after the configured timeout at the latest
   * @throws IllegalArgumentException if an argument is out of range
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
          "ids has " + copy.size() + " ids; it must have from 1 to worldSize, " + worldSize);
    }
    if (Set.copyOf(copy).size() != copy.size()) {
      throw new IllegalArgumentException("ids contains an id twice: " + copy);
    }
    return new CommInit.InitScalable(copy, worldSize, rank);
  }

  private Communicator connected(Communicator unconnected) {
    return Contract.get().connected(unconnected, null);
  }

  private Communicator unconnected(
      List<UniqueId> ids, CommInit init, int worldSize, int rank, NcclConfig config) {
    Objects.requireNonNull(config, "config");
    return Contract.get()
        .unconnected(
            backend,
            ids,
            worldSize,
            rank,
            config.common(),
            context -> driver.configured(config, init, context));
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
            context -> driver.configured(config, init, context));
  }
}
