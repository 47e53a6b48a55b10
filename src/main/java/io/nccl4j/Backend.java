package io.nccl4j;

import io.nccl4j.internal.jfr.FlightRecorderEvents;
import io.nccl4j.internal.util.Arguments;
import io.nccl4j.internal.util.LibraryVersion;
import io.nccl4j.spi.BackendDriver;
import io.nccl4j.spi.CommunicatorContext;
import io.nccl4j.spi.CommunicatorDriver;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import org.jspecify.annotations.NullMarked;
import org.jspecify.annotations.Nullable;

/**
 * An implementation of the collectives: NCCL on NVIDIA GPUs, or the pure-Java reference.
 *
 * {@snippet :
 * try (Backend backend = Backend.auto()) {
 *   backend.runRanks(backend.devices().size(), comm -> {
 *     try (Stream stream = comm.newStream();
 *         Buffer buffer = comm.newBuffer(DataType.FLOAT32, 1024)) {
 *       buffer.fill((byte) 0, stream);
 *       comm.allReduce(buffer, buffer, ReduceOp.SUM, stream);
 *       stream.synchronize();
 *     }
 *   });
 * }
 * }
 *
 * <p>A backend creates communicators, streams, events and buffers; the caller owns and closes them.
 * All ranks of a communicator use the same kind of backend, each in its own process or thread.
 *
 * <p>Any thread may use a backend.
 */
@NullMarked
public final class Backend implements AutoCloseable {
  /**
   * The code of one rank, run by {@link #runRanks}.
   *
   * @param <X> the checked exception that it may throw, or {@link RuntimeException} for none
   */
  @FunctionalInterface
  public interface RankBody<X extends Exception> {
    /**
     * Runs one rank.
     *
     * @param communicator this rank's communicator; it is closed when all ranks have returned
     * @throws X if the rank fails; the other ranks are then ended too
     */
    void run(Communicator communicator) throws X;
  }

  static {
    ContractAccess.register();
  }

  private final BackendDriver driver;
  private final AtomicBoolean closed = new AtomicBoolean();
  private volatile @Nullable String fallbackReason;

  Backend(BackendDriver driver) {
    this.driver = driver;
    FlightRecorderEvents.backendOpened();
    Statistics.backendOpened();
  }

  /**
   * {@return the NCCL backend if this process can use it, otherwise the reference backend with one
   * device per processor, at least two} The reason for using the reference backend is available
   * from {@link #fallbackReason} and is logged. The reference backend is the artifact {@code
   * nccl4j-reference}, which is found by {@link java.util.ServiceLoader}.
   *
   * <p>Each process decides independently. If the machines of a job differ, open {@link #nccl} or
   * {@link #reference} instead: all ranks of a communicator need the same backend.
   *
   * @throws LibraryNotFoundException if a system property or environment variable names a library
   *     that cannot be loaded, or a GPU driver is installed and a library was found that cannot be
   *     used, for example because it is damaged or too old; there is no fallback then
   * @throws IllegalCallerException if nccl4j has no native access, although a GPU driver is
   *     installed or a native library was named
   * @throws IllegalStateException if NCCL cannot be used and the reference backend is not on the
   *     class path or module path; the message has the reason and the dependency to add
   */
  public static Backend auto() {
    int devices = Math.max(2, Runtime.getRuntime().availableProcessors());
    return ncclOr(reason -> Backends.reference(devices, reason));
  }

  /**
   * {@return the NCCL backend if this process can use it, otherwise the backend that the supplier
   * opens} See {@link #auto()}.
   *
   * @param reference opens the fallback backend, such as a reference backend with options; called
   *     only if NCCL cannot be used. Exceptions that it throws are not wrapped
   * @throws LibraryNotFoundException as {@link #auto()} does
   * @throws IllegalCallerException as {@link #auto()} does
   */
  public static Backend auto(Supplier<Backend> reference) {
    Objects.requireNonNull(reference, "reference");
    return ncclOr(reason -> Objects.requireNonNull(reference.get(), "reference returned null"));
  }

  private static Backend ncclOr(Function<String, Backend> other) {
    return Backends.ncclOr(
        reason -> {
          Backend fallback = other.apply(reason);
          fallback.fallbackReason = reason;
          return fallback;
        });
  }

  /**
   * {@return the NCCL backend}
   *
   * @throws LibraryNotFoundException if {@code libnccl} 2.18 or later or {@code libcudart} 12 or
   *     later cannot be loaded. The message names everything that is missing: libraries, driver,
   *     device
   * @throws CudaException if both libraries were loaded, but there is no driver or no usable device
   * @throws IllegalCallerException if nccl4j has no native access
   */
  public static Backend nccl() {
    return Backends.nccl();
  }

  /**
   * {@return a reference backend in this process}
   *
   * @param devices the number of devices; 1 or more. The ranks of a communicator may outnumber the
   *     devices and then share them
   * @throws IllegalArgumentException if {@code devices} is less than 1
   * @throws IllegalStateException if the artifact {@code nccl4j-reference} is not on the class path
   *     or module path; the message has the dependency to add
   */
  public static Backend reference(int devices) {
    return Backends.reference(devices, "");
  }

  /**
   * {@return the reason why {@link #auto()} chose the reference backend; empty if this backend is
   * NCCL or was not opened by {@code auto}} The text is for humans and may have several lines.
   */
  public Optional<String> fallbackReason() {
    return Optional.ofNullable(fallbackReason);
  }

  /** {@return the backend's name: {@code nccl} or {@code reference}} */
  public String name() {
    return driver.name();
  }

  /** {@return the type of the backend's devices} */
  public DeviceType deviceType() {
    return driver.deviceType();
  }

  /**
   * {@return the devices, in the order of their indices; at least one} C: {@code
   * cudaGetDeviceCount}, {@code cudaGetDeviceProperties}.
   */
  public List<Device> devices() {
    return driver.devices();
  }

  /**
   * {@return whether this backend supports a feature on all its devices, with the libraries that it
   * has loaded} Makes no native call.
   *
   * @param feature the feature
   */
  public boolean supports(Feature feature) {
    return driver.supports(Objects.requireNonNull(feature, "feature"));
  }

  /**
   * {@return a new id for one communicator} One rank calls this method and shares the id with all
   * ranks. The backends reject each other's ids. C: {@code ncclGetUniqueId}.
   *
   * @throws IllegalStateException if the backend is closed
   * @throws NcclException if the library reports an error
   */
  public UniqueId newUniqueId() {
    checkOpen();
    return driver.newUniqueId();
  }

  /**
   * Closes an id that will not be used, for example because its exchange failed. On the reference
   * backend, the process stops listening for the id's ranks, and ranks that wait for others get an
   * {@link NcclRemoteException}. NCCL cannot close an id: its listener stays until all ranks have
   * joined or the process exits, so this method has no effect.
   *
   * <p>An id is closed automatically once its communicator has been created or has failed.
   * Idempotent; may be called from any thread, and after the backend is closed.
   *
   * @param id an id that {@link #newUniqueId} returned in this process
   * @throws IllegalArgumentException if the other backend or, on the reference backend, another
   *     process created the id, or if it is an id of {@link Communicator#newGrowId}, which ends
   *     with its communicator
   */
  public void closeUniqueId(UniqueId id) {
    checkMaker(Objects.requireNonNull(id, "id"));
    driver.closeUniqueId(id);
  }

  /**
   * Creates a communicator for one rank. It returns when all ranks have joined, within the
   * configured timeout; called in a {@link Group}, it returns at once and the communicator is
   * usable once the group has ended. C: {@code ncclCommInitRankConfig}, which does what the older
   * {@code ncclCommInitRank} does.
   *
   * @param id the id that all ranks share
   * @param worldSize the number of ranks; 1 or more
   * @param rank this rank, from 0 to {@code worldSize - 1}
   * @param config timeouts, device and name
   * @return the communicator; the caller closes it
   * @throws IllegalArgumentException if an argument is out of range, or the other backend created
   *     the id
   * @throws NcclTimeoutException if not all ranks joined within the timeout
   * @throws NcclException if the library reports an error
   * @throws IllegalStateException if the backend is closed, this thread's group holds operations,
   *     or this thread is capturing a graph
   * @throws java.util.concurrent.CancellationException if the waiting thread is interrupted; its
   *     interrupt status stays set
   */
  public Communicator newCommunicator(
      UniqueId id, int worldSize, int rank, CommunicatorConfig config) {
    Objects.requireNonNull(id, "id");
    return unconnected(
            List.of(id), worldSize, rank, config, made -> driver.newCommunicator(id, made))
        .connectedNowOrWithGroup(null);
  }

  /**
   * Creates a communicator for one rank with the default configuration, as {@link
   * #newCommunicator(UniqueId, int, int, CommunicatorConfig)} does.
   *
   * @param id the id that all ranks share
   * @param worldSize the number of ranks; 1 or more
   * @param rank this rank, from 0 to {@code worldSize - 1}
   * @return the communicator; the caller closes it
   */
  public Communicator newCommunicator(UniqueId id, int worldSize, int rank) {
    return newCommunicator(id, worldSize, rank, CommunicatorConfig.defaults());
  }

  /** Validates the arguments and creates an unconnected communicator. */
  Communicator unconnected(
      List<UniqueId> ids,
      int worldSize,
      int rank,
      CommunicatorConfig config,
      Function<CommunicatorContext, CommunicatorDriver> maker) {
    int device = deviceOf(worldSize, rank, config);
    ids.forEach(this::checkMaker);
    return new Communicator(
        this, config, device, rank, worldSize, CommunicatorLineage.init(ids), maker);
  }

  /** Validates the arguments and creates the unconnected communicator of a rank that joins. */
  Communicator unconnectedJoining(
      UniqueId growId,
      int newSize,
      int rank,
      CommunicatorConfig config,
      Function<CommunicatorContext, CommunicatorDriver> maker) {
    Objects.requireNonNull(growId, "growId");
    int device = deviceOf(newSize, rank, config);
    checkMaker(growId);
    return new Communicator(
        this, config, device, rank, newSize, CommunicatorLineage.join(growId), maker);
  }

  /** Validates the arguments of a new communicator; returns the device that the rank uses. */
  private int deviceOf(int worldSize, int rank, CommunicatorConfig config) {
    checkMakes("making a communicator");
    Objects.requireNonNull(config, "config");
    Arguments.atLeast(worldSize, "worldSize", 1);
    Arguments.inRange(rank, "rank", 0, worldSize - 1);
    int device = config.device().orElse(rank % devices().size());
    checkDevice(device);
    return device;
  }

  /**
   * Throws unless this backend created the id. NCCL would interpret an id of the reference backend
   * as an address and fail with a misleading error.
   */
  private void checkMaker(UniqueId id) {
    boolean ofReference = Backends.madeByReference(id);
    boolean onReference = deviceType() == DeviceType.HOST;
    if (ofReference == onReference) {
      return;
    }
    String maker =
        ofReference ? "the reference backend in " + Backends.referenceMakerOf(id) : "NCCL";
    String reason =
        onReference
            ? fallbackReason().map(text -> ". This rank does not use NCCL: " + text).orElse("")
            : ". Backend.fallbackReason() in the process that made the id may say why that process does"
                + " not use NCCL";
    throw new IllegalArgumentException(
        id
            + " was made by "
            + maker
            + ", but this rank uses "
            + (onReference ? "the reference backend" : "NCCL")
            + ". All ranks of a communicator need the same backend: open Backend.nccl() on every"
            + " rank, or Backend.reference(n)"
            + reason);
  }

  /**
   * Joins a communicator that grows, as a new rank; the existing ranks call {@link
   * Communicator#grow(int, UniqueId, CommunicatorConfig)}. It returns when all ranks have joined,
   * within the configured timeout; called in a {@link Group}, it returns at once and the
   * communicator is usable once the group has ended. C: {@code ncclCommGrow} without a
   * communicator, from NCCL 2.29.2 on.
   *
   * @param growId the id that {@link Communicator#newGrowId} returned on a rank of the communicator
   * @param newSize the number of ranks, existing and new
   * @param rank this rank, from the existing number of ranks to {@code newSize - 1}
   * @param config timeouts, device and name
   * @return the communicator; the caller closes it
   * @throws IllegalArgumentException if an argument is out of range, or the other backend created
   *     the id
   * @throws NcclTimeoutException if not all ranks joined within the timeout
   * @throws NcclException if the library reports an error
   * @throws UnsupportedNcclVersionException if the library is too old
   * @throws IllegalStateException if the backend is closed, or this thread's group holds operations
   * @throws java.util.concurrent.CancellationException if the waiting thread is interrupted; its
   *     interrupt status stays set
   */
  public Communicator join(UniqueId growId, int newSize, int rank, CommunicatorConfig config) {
    return unconnectedJoining(growId, newSize, rank, config, made -> driver.join(growId, made))
        .connectedNowOrWithGroup(null);
  }

  /**
   * Joins a communicator that grows with the default configuration, as {@link #join(UniqueId, int,
   * int, CommunicatorConfig)} does.
   *
   * @param growId the id that {@link Communicator#newGrowId} returned on a rank of the communicator
   * @param newSize the number of ranks, existing and new
   * @param rank this rank, from the existing number of ranks to {@code newSize - 1}
   * @return the communicator; the caller closes it
   */
  public Communicator join(UniqueId growId, int newSize, int rank) {
    return join(growId, newSize, rank, CommunicatorConfig.defaults());
  }

  /**
   * Creates a communicator whose ranks are all in this process with the default configuration, as
   * {@link #newCommunicators(int[], CommunicatorConfig)} does.
   *
   * @param devices the device of each rank; at least one
   * @return the communicator of each rank, in rank order; the caller closes them
   */
  public CommunicatorList newCommunicators(int... devices) {
    return newCommunicators(devices, CommunicatorConfig.defaults());
  }

  /**
   * Creates a communicator whose ranks are all in this process, one per listed device, in the order
   * of the list. The ranks connect concurrently, each in its own thread. C: as {@code
   * ncclCommInitAll}, by {@code ncclCommInitRankConfig}.
   *
   * <p>A thread that drives several of these ranks calls their operations in one {@link Group#run}:
   * outside a group the first call may not return until the other ranks have called. If one thread
   * calls the same collective outside a group for two ranks, the second call throws an {@link
   * IllegalStateException}. With a thread for each rank, no group is needed.
   *
   * @param devices the device of each rank; at least one
   * @param config timeout, name and whether blocking; its device is not used
   * @return the communicator of each rank, in rank order; the caller closes them
   * @throws IllegalArgumentException if {@code devices} is empty or contains an index that does not
   *     exist
   * @throws IllegalStateException if called in a group, or if the backend is closed
   * @throws NcclException if the library reports an error, or the timeout expires
   */
  public CommunicatorList newCommunicators(int[] devices, CommunicatorConfig config) {
    checkOpen();
    Objects.requireNonNull(devices, "devices");
    Objects.requireNonNull(config, "config");
    if (devices.length == 0) {
      throw new IllegalArgumentException("devices is empty; there must be one for each rank");
    }
    if (Group.current() != null) {
      throw new IllegalStateException(
          "newCommunicators opens its own group and cannot be called in a group");
    }
    for (int device : devices) {
      checkDevice(device);
    }
    UniqueId id = newUniqueId();
    List<Communicator> made = new ArrayList<>();
    Group.run(
        () -> {
          for (int rank = 0; rank < devices.length; rank++) {
            made.add(newCommunicator(id, devices.length, rank, config.withDevice(devices[rank])));
          }
        });
    return new CommunicatorList(made);
  }

  /**
   * Runs the ranks of a communicator in this process, each in its own platform thread, with the
   * default configuration. See {@link #runRanks(int, RankBody, CommunicatorConfig)}.
   *
   * @param ranks the number of ranks; 1 or more
   * @param body runs one rank
   * @param <X> the checked exception that {@code body} throws
   * @throws X the first failure of a rank
   */
  public <X extends Exception> void runRanks(int ranks, RankBody<X> body) throws X {
    runRanks(ranks, body, CommunicatorConfig.defaults());
  }

  /**
   * Runs the ranks of a communicator in this process, each in its own platform thread, and returns
   * when all have ended. Rank r uses device r modulo the number of {@link #devices()}.
   *
   * <p>When a rank throws, the communicators of all ranks are aborted and the other threads are
   * interrupted, so that ranks that wait for each other end too. If a thread does not respond to
   * the interrupt, this method waits for it until the timeout of {@code config} expires and then
   * leaves it running.
   *
   * @param ranks the number of ranks; 1 or more
   * @param body runs one rank; called once for each rank, concurrently
   * @param config timeout, name and whether blocking; its device is not used
   * @param <X> the checked exception that {@code body} throws
   * @throws X the first failure of a rank, with those of the other ranks suppressed in it
   * @throws NcclException as {@link #newCommunicators(int[], CommunicatorConfig)} does
   * @throws IllegalArgumentException if {@code ranks} is less than 1
   * @throws IllegalStateException if the backend is closed, or this thread has a group open or is
   *     capturing a graph
   * @throws java.util.concurrent.CancellationException if this thread is interrupted while it
   *     waits; the ranks are then ended, and the interrupt status stays set
   */
  public <X extends Exception> void runRanks(int ranks, RankBody<X> body, CommunicatorConfig config)
      throws X {
    checkMakes("runRanks");
    Arguments.atLeast(ranks, "ranks", 1);
    Objects.requireNonNull(body, "body");
    Objects.requireNonNull(config, "config");
    if (Group.current() != null) {
      throw new IllegalStateException("runRanks cannot be called in a group");
    }
    int[] placed = IntStream.range(0, ranks).map(rank -> rank % devices().size()).toArray();
    try (CommunicatorList comms = newCommunicators(placed, config)) {
      new RankRunner<X>(
              rank -> body.run(comms.get(rank)),
              () -> Communicator.abortAll(comms),
              comms.getFirst().timeout())
          .run(ranks);
    }
  }

  /**
   * {@return a new stream on a device, of normal priority; the caller closes it} C: {@code
   * cudaStreamCreateWithPriority}, non-blocking.
   *
   * @param device the index of the device, from 0
   * @throws IllegalArgumentException if there is no such device
   * @throws IllegalStateException if the backend is closed, or this thread is capturing a graph
   * @throws CudaException if the CUDA runtime reports an error
   */
  public Stream newStream(int device) {
    return newStream(device, Stream.Priority.NORMAL);
  }

  /**
   * {@return a new stream on a device; the caller closes it} C: {@code
   * cudaStreamCreateWithPriority}, non-blocking, with {@code cudaDeviceGetStreamPriorityRange}.
   *
   * @param device the index of the device, from 0
   * @param priority the priority of the stream's work on the device
   * @throws IllegalArgumentException if there is no such device
   * @throws IllegalStateException if the backend is closed, or this thread is capturing a graph
   * @throws CudaException if the CUDA runtime reports an error
   */
  public Stream newStream(int device, Stream.Priority priority) {
    checkMakes("making a stream");
    checkDevice(device);
    Objects.requireNonNull(priority, "priority");
    return new Stream(deviceType(), device, users -> driver.newStream(device, priority, users));
  }

  /**
   * {@return a new event of a device; the caller closes it} C: {@code cudaEventCreateWithFlags}.
   *
   * @param device the index of the device, from 0
   * @throws IllegalArgumentException if there is no such device
   * @throws IllegalStateException if the backend is closed, or this thread is capturing a graph
   * @throws CudaException if the CUDA runtime reports an error
   */
  public Event newEvent(int device) {
    checkMakes("making an event");
    checkDevice(device);
    return new Event(deviceType(), device, driver.newEvent(device));
  }

  /**
   * Allocates device memory. Its contents are undefined. C: {@code cudaMalloc}, {@code cudaFree}.
   *
   * <p>CUDA may wait for the device's kernels before it allocates or frees memory, and an NCCL
   * kernel waits for its peers. Therefore, from the time when two ranks of one communicator are
   * open in this process until all of them are closed, the device and pinned memory of closed
   * buffers is kept: an allocation of exactly the same size reuses it, and the rest is freed once
   * these ranks are closed, or if memory runs short. It is also kept while CUDA takes longer than a
   * second to free memory. Other libraries must have finished with the memory before it is closed.
   * Ranks that share a device must allocate before any of them communicates, or synchronize with
   * each other first.
   *
   * @param device the index of the device, from 0
   * @param type the type of the elements
   * @param count the number of elements; 0 or more
   * @return the buffer, which owns its memory; the caller closes it
   * @throws IllegalArgumentException if device or count is out of range
   * @throws IllegalStateException if the backend is closed, or this thread is capturing a graph
   * @throws CudaException if there is not enough memory on the device
   * @throws NcclTimeoutException if the device has been busy for 30 s
   * @throws OutOfMemoryError if there is not enough memory on the host, with the reference backend
   */
  public Buffer newBuffer(int device, DataType type, long count) {
    checkMakes("allocating");
    checkDevice(device);
    Objects.requireNonNull(type, "type").byteSize(count);
    return Buffer.ofDevice(driver, device, type, count);
  }

  /**
   * Allocates page-locked host memory, which allows fast copies to and from devices and is
   * accessible through {@link Buffer#segment}. On the reference backend this is ordinary host
   * memory. All devices of the backend can use it. Its contents are undefined. C: {@code
   * cudaHostAlloc}, {@code cudaFreeHost}.
   *
   * @param type the type of the elements
   * @param count the number of elements; 0 or more
   * @return the buffer, of {@link Buffer#ANY_DEVICE}, which owns its memory; the caller closes it
   * @throws IllegalArgumentException if the count is out of range
   * @throws IllegalStateException if the backend is closed, or this thread is capturing a graph
   * @throws CudaException if there is not enough memory
   * @throws NcclTimeoutException if a device has been busy for 30 s
   */
  public Buffer newPinnedBuffer(DataType type, long count) {
    checkMakes("allocating");
    Objects.requireNonNull(type, "type").byteSize(count);
    Buffer.MemoryType memoryType =
        deviceType() == DeviceType.CUDA ? Buffer.MemoryType.PINNED : Buffer.MemoryType.HOST;
    return Buffer.of(
        memoryType, driver.allocatePinned(type, count), type, count, Buffer.ANY_DEVICE);
  }

  /**
   * Closes the backend: it creates no further objects, including those that its communicators
   * create ({@link Communicator#newStream} and similar). Existing objects stay usable until they
   * are closed. Idempotent.
   */
  @Override
  public void close() {
    if (closed.compareAndSet(false, true)) {
      FlightRecorderEvents.backendClosed();
      Statistics.backendClosed();
    }
  }

  void checkMakes(String call) {
    checkOpen();
    ThreadScope.checkNotCapturing(call);
  }

  /**
   * {@return the version of nccl4j, or {@code unpackaged} if its classes were not loaded from a
   * jar}
   */
  public static String libraryVersion() {
    return LibraryVersion.current();
  }

  /** Throws unless the device exists. */
  void checkDevice(int device) {
    Arguments.inRange(device, "device", 0, devices().size() - 1);
  }

  /** Throws unless this backend is open. */
  void checkOpen() {
    if (closed.get()) {
      throw new IllegalStateException("backend is closed: " + this);
    }
  }

  BackendDriver driver() {
    return driver;
  }

  @Override
  public String toString() {
    return "Backend[" + name() + ", " + devices().size() + " devices]";
  }
}
