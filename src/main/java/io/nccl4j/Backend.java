package io.nccl4j;

import io.nccl4j.internal.util.Arguments;
import io.nccl4j.spi.BackendDriver;
import io.nccl4j.spi.CommunicatorContext;
import io.nccl4j.spi.CommunicatorDriver;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.function.Function;
import java.util.function.Supplier;

/**
 * An implementation of the collectives: NCCL on NVIDIA GPUs, or the pure-Java reference. It makes
 * communicators, streams, events and buffers, which belong to their callers. All ranks of a
 * communicator use the same backend, each in its own process or thread.
 *
 * <p>Any thread may use a backend.
 */
public final class Backend implements AutoCloseable {
  /**
   * What one rank does with its communicator, as {@link #runRanks} runs it.
   *
   * @param <X> the checked exception that it may throw; {@link RuntimeException} if there is none
   */
  @FunctionalInterface
  public interface RankBody<X extends Exception> {
    /**
     * Runs one rank, in a thread of its own.
     *
     * @param communicator this rank's communicator, which is closed when this method returns
     * @throws X if the rank fails, which ends the other ranks too
     */
    void run(Communicator communicator) throws X;
  }

  static {
    ContractAccess.register();
  }

  private final BackendDriver driver;
  private volatile boolean closed;
  private volatile String fallbackReason;

  Backend(BackendDriver driver) {
    this.driver = driver;
  }

  /**
   * {@return the NCCL backend if this process can use it, else the reference with one device per
   * processor, at least two} {@link #fallbackReason} of the returned backend says why it is the
   * reference; the reason is also logged.
   *
   * <p>Each process decides for itself. Where the machines of a job differ, open {@link #nccl} or
   * {@link #reference} instead: all ranks of a communicator need the same backend.
   *
   * @throws LibraryNotFoundException if a system property or environment variable names a library
   *     that cannot be loaded: a program that asks for one library must not run without it
   * @throws IllegalCallerException if a GPU driver is installed or a native library was named, but
   *     nccl4j has no native access
   */
  public static Backend auto() {
    return auto(() -> reference(Math.max(2, Runtime.getRuntime().availableProcessors())));
  }

  /**
   * {@return the NCCL backend if this process can use it, else a backend that the caller opens}
   * Otherwise like {@link #auto()}.
   *
   * @param reference opens the other backend, such as a reference backend with options; called only
   *     if NCCL cannot be used. What it throws is not wrapped
   * @throws LibraryNotFoundException as {@link #auto()} does
   * @throws IllegalCallerException as {@link #auto()} does
   */
  public static Backend auto(Supplier<Backend> reference) {
    Objects.requireNonNull(reference, "reference");
    return Backends.ncclOr(
        reason -> {
          Backend fallback = Objects.requireNonNull(reference.get(), "reference returned null");
          fallback.fallbackReason = reason;
          return fallback;
        });
  }

  /**
   * {@return the NCCL backend}
   *
   * @throws LibraryNotFoundException if {@code libnccl} 2.18 or later or {@code libcudart} 12 or
   *     later cannot be loaded. The message names everything that is missing: either library, the
   *     driver, a device
   * @throws CudaException if both libraries were loaded, but there is no driver or no usable device
   * @throws IllegalCallerException if nccl4j has no native access
   */
  public static Backend nccl() {
    return Backends.nccl();
  }

  /**
   * {@return a reference backend in this process}
   *
   * @param devices how many devices it shows; 1 or more. A communicator may have more ranks than
   *     that, which then share them
   * @throws IllegalArgumentException if there is to be no device
   */
  public static Backend reference(int devices) {
    return Backends.reference(devices);
  }

  /**
   * {@return why {@link #auto()} chose the reference, or nothing if this backend is NCCL or was not
   * opened by {@code auto}} The text is meant for people and may have several lines.
   */
  public Optional<String> fallbackReason() {
    return Optional.ofNullable(fallbackReason);
  }

  /** {@return the backend's name: {@code nccl} or {@code reference}} */
  public String name() {
    return driver.name();
  }

  /** {@return what the backend's devices are} */
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
   * {@return whether this backend can do something, on all its devices and with the libraries that
   * it has found} Nothing is tried, and nothing native is called.
   *
   * @param feature what it is to do
   */
  public boolean supports(Feature feature) {
    return driver.supports(Objects.requireNonNull(feature, "feature"));
  }

  /**
   * {@return a new id for one communicator} One rank calls this; all ranks need its result, and
   * this backend: an id of the reference is refused by NCCL and the reverse. C: {@code
   * ncclGetUniqueId}.
   *
   * @throws IllegalStateException if the backend is closed
   * @throws NcclException if the library failed
   */
  public UniqueId newUniqueId() {
    checkOpen();
    return driver.newUniqueId();
  }

  /**
   * Closes an id that will not be used, such as one whose exchange has failed. On the reference the
   * process then no longer listens for the id's ranks; those that wait for others get an {@link
   * NcclRemoteException}. NCCL cannot close an id: what listens for its ranks stays until they have
   * come or the process ends, so nothing happens.
   *
   * <p>An id whose communicator has been made or has failed is closed already. It may be closed
   * again, from any thread, and when the backend is closed.
   *
   * @param id what {@link #newUniqueId} returned in this process
   * @throws IllegalArgumentException if the other backend or, on the reference, another process
   *     made the id, or it is the id of a grow, which ends with its communicator
   */
  public void closeUniqueId(UniqueId id) {
    checkMaker(Objects.requireNonNull(id, "id"));
    driver.closeUniqueId(id);
  }

  /**
   * Makes one rank's end of a communicator. It returns when all ranks have joined, within the
   * configured timeout; called in a {@link Group}, it returns at once and the communicator is
   * usable when the group has ended. C: {@code ncclCommInitRankConfig}, which does what the older
   * {@code ncclCommInitRank} does.
   *
   * @param id the id that all ranks share
   * @param worldSize the number of ranks; 1 or more
   * @param rank this rank, from 0 to {@code worldSize - 1}
   * @param config timeouts, device and name
   * @return the communicator, for the caller to close
   * @throws IllegalArgumentException if an argument is out of its range, or the other backend made
   *     the id
   * @throws NcclTimeoutException if not all ranks joined in time
   * @throws NcclException if the library failed
   * @throws IllegalStateException if the backend is closed, this thread's group holds operations,
   *     or this thread is capturing a graph
   * @throws java.util.concurrent.CancellationException if the waiting thread was interrupted, which
   *     it stays
   */
  public Communicator newCommunicator(
      UniqueId id, int worldSize, int rank, CommunicatorConfig config) {
    Objects.requireNonNull(id, "id");
    return unconnected(
            List.of(id), worldSize, rank, config, made -> driver.newCommunicator(id, made))
        .connectedNowOrWithGroup(null);
  }

  /**
   * Makes one rank's end of a communicator with the default configuration, as {@link
   * #newCommunicator(UniqueId, int, int, CommunicatorConfig)} does.
   *
   * @param id the id that all ranks share
   * @param worldSize the number of ranks; 1 or more
   * @param rank this rank, from 0 to {@code worldSize - 1}
   * @return the communicator, for the caller to close
   */
  public Communicator newCommunicator(UniqueId id, int worldSize, int rank) {
    return newCommunicator(id, worldSize, rank, CommunicatorConfig.defaults());
  }

  /** Makes one rank's end of a communicator, after all checks. */
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

  /** Makes a new rank's end of a communicator that grows, after all checks. */
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

  /** Checks what a communicator is to be made of; returns the device that the rank uses. */
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
   * Throws unless this rank's backend is the one that made an id. NCCL would take an id of the
   * reference for an address and fail with an error that says nothing of it.
   */
  private void checkMaker(UniqueId id) {
    Optional<String> referenceProcess = Backends.referenceMakerOf(id);
    boolean onReference = deviceType() == DeviceType.HOST;
    if (referenceProcess.isPresent() == onReference) {
      return;
    }
    String maker =
        referenceProcess.map(process -> "the reference backend in " + process).orElse("NCCL");
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
   * Makes a new rank's end of a communicator that grows; the ranks that it has call {@link
   * Communicator#grow(int, UniqueId, CommunicatorConfig)}. It returns when all ranks have joined,
   * within the configured timeout; called in a {@link Group}, it returns at once and the
   * communicator is usable when the group has ended. C: {@code ncclCommGrow} without a
   * communicator, from NCCL 2.29.2 on.
   *
   * @param growId the id that {@link Communicator#newGrowId} returned on a rank of the communicator
   * @param newSize the number of ranks, old and new
   * @param rank this rank, from the old number of ranks to {@code newSize - 1}
   * @param config timeouts, device and name
   * @return the communicator, for the caller to close
   * @throws IllegalArgumentException if an argument is out of its range, or the other backend made
   *     the id
   * @throws NcclTimeoutException if not all ranks joined in time
   * @throws NcclException if the library failed
   * @throws UnsupportedNcclVersionException if the library is too old
   * @throws IllegalStateException if the backend is closed, or this thread's group holds operations
   * @throws java.util.concurrent.CancellationException if the waiting thread was interrupted, which
   *     it stays
   */
  public Communicator join(UniqueId growId, int newSize, int rank, CommunicatorConfig config) {
    return unconnectedJoining(growId, newSize, rank, config, made -> driver.join(growId, made))
        .connectedNowOrWithGroup(null);
  }

  /**
   * Makes a new rank's end of a communicator that grows with the default configuration, as {@link
   * #join(UniqueId, int, int, CommunicatorConfig)} does.
   *
   * @param growId the id that {@link Communicator#newGrowId} returned on a rank of the communicator
   * @param newSize the number of ranks, old and new
   * @param rank this rank, from the old number of ranks to {@code newSize - 1}
   * @return the communicator, for the caller to close
   */
  public Communicator join(UniqueId growId, int newSize, int rank) {
    return join(growId, newSize, rank, CommunicatorConfig.defaults());
  }

  /**
   * Makes a communicator whose ranks are all in this process with the default configuration, as
   * {@link #newCommunicators(int[], CommunicatorConfig)} does.
   *
   * @param devices the device of each rank; at least one
   * @return the ranks' ends, for the caller to close
   */
  public CommunicatorList newCommunicators(int... devices) {
    return newCommunicators(devices, CommunicatorConfig.defaults());
  }

  /**
   * Makes a communicator whose ranks are all in this process, one per device listed, rank 0 first.
   * The ranks are made together, each in a thread of its own. C: as {@code ncclCommInitAll}, by
   * {@code ncclCommInitRankConfig}.
   *
   * <p>A thread that drives several of these ranks calls their operations in one {@link Group#run}:
   * outside a group the first call may not return until the other ranks have called. The same
   * collective of two ranks, called by one thread outside a group, is refused with an {@link
   * IllegalStateException}; a thread for each rank needs no group.
   *
   * @param devices the device of each rank; at least one
   * @param config timeout, name and whether blocking; its device is not used
   * @return the ranks' ends, for the caller to close
   * @throws IllegalArgumentException if there is no device, or none of such a number
   * @throws IllegalStateException if called in a group, or if the backend is closed
   * @throws NcclException if the library failed, or the time has passed
   */
  public CommunicatorList newCommunicators(int[] devices, CommunicatorConfig config) {
    checkOpen();
    Objects.requireNonNull(devices, "devices");
    Objects.requireNonNull(config, "config");
    if (devices.length == 0) {
      throw new IllegalArgumentException("devices is empty; there must be one for each rank");
    }
    if (Group.current() != null) {
      throw new IllegalStateException("newCommunicators makes a group and cannot be called in one");
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
   * Runs the ranks of a communicator in this process, each in a platform thread of its own, with
   * the default configuration. See {@link #runRanks(int, RankBody, CommunicatorConfig)}.
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
   * Runs the ranks of a communicator in this process, each in a platform thread of its own, and
   * returns when all have ended. Rank r uses device r modulo the number of {@link #devices()}.
   *
   * <p>When a rank throws, its failure is the first one: the communicators of all ranks are aborted
   * and the other threads are interrupted, so that ranks that wait for each other end too. A wait
   * of the body that an interrupt does not end delays this method for the timeout of {@code config}
   * at most; the thread is then left running.
   *
   * @param ranks the number of ranks; 1 or more
   * @param body runs one rank; called once for each rank, at the same time
   * @param config timeout, name and whether blocking; its device is not used
   * @param <X> the checked exception that {@code body} throws
   * @throws X the first failure of a rank, with those of the other ranks suppressed in it; what
   *     {@link #newCommunicator} throws is such a failure
   * @throws IllegalArgumentException if {@code ranks} is less than 1
   * @throws IllegalStateException if the backend is closed, or this thread has a group open or is
   *     capturing a graph
   * @throws java.util.concurrent.CancellationException if this thread is interrupted while it
   *     waits, which ends the ranks; it stays interrupted
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
    List<UniqueId> id = List.of(newUniqueId());
    new RankRunner<X>(
            rank ->
                rank(
                    unconnected(
                        id,
                        ranks,
                        rank,
                        config.withDevice(rank % devices().size()),
                        made -> driver.newCommunicator(id.getFirst(), made)),
                    body),
            config.timeout())
        .run(ranks);
  }

  private static <X extends Exception> RankRunner.Rank<X> rank(
      Communicator communicator, RankBody<X> body) {
    return new RankRunner.Rank<>() {
      @Override
      public void run() throws X {
        communicator.connectedNowOrWithGroup(null);
        body.run(communicator);
        communicator.close();
      }

      @Override
      public void abort() {
        communicator.abort();
      }
    };
  }

  /**
   * {@return a new stream on a device, for the caller to close} C: {@code
   * cudaStreamCreateWithFlags}, non-blocking.
   *
   * @param device the index of the device, from 0
   * @throws IllegalArgumentException if there is no such device
   * @throws IllegalStateException if the backend is closed, or this thread is capturing a graph
   * @throws CudaException if the runtime refuses
   */
  public Stream newStream(int device) {
    checkMakes("making a stream");
    checkDevice(device);
    return new Stream(deviceType(), device, users -> driver.newStream(device, users));
  }

  /**
   * {@return a new event of a device, for the caller to close} C: {@code cudaEventCreateWithFlags}.
   *
   * @param device the index of the device, from 0
   * @throws IllegalArgumentException if there is no such device
   * @throws IllegalStateException if the backend is closed, or this thread is capturing a graph
   * @throws CudaException if the runtime refuses
   */
  public Event newEvent(int device) {
    checkMakes("making an event");
    checkDevice(device);
    return new Event(deviceType(), device, driver.newEvent(device));
  }

  /**
   * Allocates device memory, for the caller to close. Its contents are undefined. C: {@code
   * cudaMalloc}.
   *
   * @param device the index of the device whose memory it is, from 0
   * @param type the type of the elements
   * @param count how many elements; 0 or more
   * @return the buffer, which owns its memory
   * @throws IllegalArgumentException if device or count is out of its range
   * @throws IllegalStateException if the backend is closed, or this thread is capturing a graph
   * @throws CudaException if there is not enough memory on the device
   * @throws OutOfMemoryError if there is not enough memory on the host, for the reference
   */
  public Buffer newBuffer(int device, DataType type, long count) {
    checkMakes("allocating");
    checkDevice(device);
    Objects.requireNonNull(type, "type").byteSize(count);
    Buffer.MemoryType memoryType =
        deviceType() == DeviceType.CUDA ? Buffer.MemoryType.DEVICE : Buffer.MemoryType.HOST;
    return Buffer.of(memoryType, driver.allocate(device, type, count), type, count, device);
  }

  /**
   * Allocates host memory that copies to and from devices quickly and that the host can address
   * with {@link Buffer#segment}, for the caller to close; on the reference, host memory like any
   * other, for all its devices. Its contents are undefined. C: {@code cudaHostAlloc}.
   *
   * @param type the type of the elements
   * @param count how many elements; 0 or more
   * @return the buffer, of {@link Buffer#ANY_DEVICE}, which owns its memory
   * @throws IllegalArgumentException if count is out of its range
   * @throws IllegalStateException if the backend is closed, or this thread is capturing a graph
   * @throws CudaException if there is not enough memory
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
   * Closes the backend: it makes nothing more, also not for its communicators ({@link
   * Communicator#newStream} and the like). The objects that it has made stay usable until they are
   * closed. Idempotent.
   */
  @Override
  public void close() {
    closed = true;
  }

  private void checkMakes(String call) {
    checkOpen();
    ThreadScope.checkNotCapturing(call);
  }

  /** {@return nccl4j's own version, or {@code unpackaged} where its classes come from no jar} */
  public static String libraryVersion() {
    return LibraryVersion.current();
  }

  /** Throws unless there is such a device. */
  void checkDevice(int device) {
    Arguments.inRange(device, "device", 0, devices().size() - 1);
  }

  /** Throws unless this backend is open. */
  void checkOpen() {
    if (closed) {
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
