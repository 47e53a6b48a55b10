package io.nccl4j;

import io.nccl4j.internal.util.Arguments;
import io.nccl4j.nccl.NcclBackend;
import io.nccl4j.reference.ReferenceBackend;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.function.Predicate;
import java.util.function.Supplier;

/**
 * An implementation of the collectives: NCCL on NVIDIA GPUs, or the pure-Java reference. It makes
 * communicators, streams, events and buffers, which belong to their callers. All ranks of a
 * communicator use the same backend, each in its own process or thread.
 *
 * <p>Any thread may use a backend.
 */
public abstract sealed class Backend implements AutoCloseable
    permits NcclBackend, ReferenceBackend {
  private static final String LIBRARY_VERSION = findLibraryVersion();

  private volatile boolean closed;
  private volatile String fallbackReason;

  /** For the backends. */
  protected Backend() {}

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
    return auto(
        () -> ReferenceBackend.open(Math.max(2, Runtime.getRuntime().availableProcessors())));
  }

  /**
   * {@return the NCCL backend if this process can use it, else a reference backend that the caller
   * opens} Otherwise like {@link #auto()}.
   *
   * @param reference opens the reference backend; called only if NCCL cannot be used. What it
   *     throws is not wrapped
   * @throws LibraryNotFoundException as {@link #auto()} does
   * @throws IllegalCallerException as {@link #auto()} does
   */
  public static Backend auto(Supplier<ReferenceBackend> reference) {
    Objects.requireNonNull(reference, "reference");
    return NcclBackend.openOr(
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
    return NcclBackend.open();
  }

  /**
   * {@return a reference backend in this process}
   *
   * @param devices how many devices it shows; 1 or more. A communicator may have more ranks than
   *     that, which then share them
   * @throws IllegalArgumentException if there is to be no device
   */
  public static Backend reference(int devices) {
    return ReferenceBackend.open(devices);
  }

  /**
   * {@return why {@link #auto()} chose the reference, or nothing if this backend is NCCL or was not
   * opened by {@code auto}} The text is meant for people and may have several lines.
   */
  public final Optional<String> fallbackReason() {
    return Optional.ofNullable(fallbackReason);
  }

  /** {@return the backend's name: {@code nccl} or {@code reference}} */
  public abstract String name();

  /** {@return what the backend's devices are} */
  public abstract Platform platform();

  /**
   * {@return the devices, in the order of their indices; at least one} C: {@code
   * cudaGetDeviceCount}, {@code cudaGetDeviceProperties}.
   */
  public abstract List<Device> devices();

  /**
   * {@return whether this backend can do something, on all its devices and with the libraries that
   * it has found} Nothing is tried, and nothing native is called.
   *
   * @param feature what it is to do
   */
  public final boolean supports(Feature feature) {
    return has(Objects.requireNonNull(feature, "feature"));
  }

  /**
   * {@return a new id for one communicator} One rank calls this; all ranks need its result, and
   * this backend: an id of the reference is refused by NCCL and the reverse. C: {@code
   * ncclGetUniqueId}.
   *
   * @throws IllegalStateException if the backend is closed
   * @throws NcclException if the library failed
   */
  public final UniqueId newUniqueId() {
    checkOpen();
    return createUniqueId();
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
  public final void closeUniqueId(UniqueId id) {
    checkMaker(Objects.requireNonNull(id, "id"));
    closeId(id);
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
  public final Communicator communicator(
      UniqueId id, int worldSize, int rank, CommunicatorConfig config) {
    Objects.requireNonNull(id, "id");
    int device = deviceOf(worldSize, rank, config);
    checkMaker(id);
    Communicator communicator = newCommunicator(id, worldSize, rank, device, config);
    communicator.connectNowOrWithGroup(null);
    return communicator;
  }

  /**
   * For the backends: checks what a communicator is to be made of.
   *
   * @param worldSize the number of ranks
   * @param rank this rank
   * @param config the configuration
   * @return the index of the device that the rank uses
   */
  protected final int deviceOf(int worldSize, int rank, CommunicatorConfig config) {
    checkMakes("making a communicator");
    Objects.requireNonNull(config, "config");
    Arguments.atLeast(worldSize, "worldSize", 1);
    Arguments.inRange(rank, "rank", 0, worldSize - 1);
    int device = config.device().orElse(rank % devices().size());
    checkDevice(device);
    return device;
  }

  /**
   * For the backends: throws unless this rank's backend is the one that made an id. NCCL would take
   * an id of the reference for an address and fail with an error that says nothing of it.
   *
   * @param id the id of a communicator or of a grow
   * @throws IllegalArgumentException if the other backend made the id, or it is damaged
   */
  protected final void checkMaker(UniqueId id) {
    Optional<String> referenceProcess = ReferenceBackend.makerOf(id);
    boolean onReference = platform() == Platform.HOST;
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
  public final Communicator join(
      UniqueId growId, int newSize, int rank, CommunicatorConfig config) {
    Objects.requireNonNull(growId, "growId");
    int device = deviceOf(newSize, rank, config);
    checkMaker(growId);
    Communicator communicator = newJoining(growId, newSize, rank, device, config);
    communicator.connectNowOrWithGroup(null);
    return communicator;
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
   * @param config timeout, name and whether blocking; its device is not looked at
   * @param devices the device of each rank; at least one
   * @return the ranks' ends, for the caller to close
   * @throws IllegalArgumentException if there is no device, or none of such a number
   * @throws IllegalStateException if called in a group, or if the backend is closed
   * @throws NcclException if the library failed, or the time has passed
   */
  public final List<Communicator> communicators(CommunicatorConfig config, int... devices) {
    checkOpen();
    Objects.requireNonNull(config, "config");
    Objects.requireNonNull(devices, "devices");
    if (devices.length == 0) {
      throw new IllegalArgumentException("devices is empty; there must be one for each rank");
    }
    if (Group.current() != null) {
      throw new IllegalStateException(
          "communicators makes a group of its own and cannot be called in one");
    }
    for (int device : devices) {
      checkDevice(device);
    }
    UniqueId id = newUniqueId();
    List<Communicator> made = new ArrayList<>();
    Group.run(
        () -> {
          for (int rank = 0; rank < devices.length; rank++) {
            made.add(communicator(id, devices.length, rank, config.withDevice(devices[rank])));
          }
        });
    return List.copyOf(made);
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
  public final Stream newStream(int device) {
    checkMakes("making a stream");
    checkDevice(device);
    return createStream(device);
  }

  /**
   * {@return a new event of a device, for the caller to close} C: {@code cudaEventCreateWithFlags}.
   *
   * @param device the index of the device, from 0
   * @throws IllegalArgumentException if there is no such device
   * @throws IllegalStateException if the backend is closed, or this thread is capturing a graph
   * @throws CudaException if the runtime refuses
   */
  public final Event newEvent(int device) {
    checkMakes("making an event");
    checkDevice(device);
    return createEvent(device);
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
  public final Buffer allocate(int device, DataType type, long count) {
    checkMakes("allocating");
    checkDevice(device);
    Objects.requireNonNull(type, "type").byteSize(count);
    return createBuffer(device, type, count);
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
  public final Buffer allocatePinned(DataType type, long count) {
    checkMakes("allocating");
    Objects.requireNonNull(type, "type").byteSize(count);
    return createPinnedBuffer(type, count);
  }

  /**
   * Closes the backend: it makes nothing more, also not for its communicators ({@link
   * Communicator#newStream} and the like). The objects that it has made stay usable until they are
   * closed. Idempotent.
   */
  @Override
  public final void close() {
    closed = true;
  }

  /**
   * For the backends: initializes their classes and those of this package on a thread with plenty
   * of stack, when the first backend of a kind is opened. An {@link Error} in a class initializer,
   * such as a {@link StackOverflowError} that the program survives, makes the class unusable for
   * the life of the process.
   *
   * @param names the backend's outermost classes, by their names after {@code io.nccl4j.}
   * @param usable whether a class, outermost or nested, can be initialized at all
   */
  protected static void initialize(List<String> names, Predicate<Class<?>> usable) {
    ClassInitialization.run(ClassInitialization.CONTRACT, all -> true);
    ClassInitialization.run(names, usable);
  }

  private void checkMakes(String call) {
    checkOpen();
    Graph.checkNotCapturing(call);
  }

  /** {@return nccl4j's own version, or {@code unpackaged} where its classes come from no jar} */
  public static String libraryVersion() {
    return LIBRARY_VERSION;
  }

  private static String findLibraryVersion() {
    Module module = Backend.class.getModule();
    String fromModule = module.isNamed() ? module.getDescriptor().rawVersion().orElse(null) : null;
    String fromManifest = Backend.class.getPackage().getImplementationVersion();
    return Objects.requireNonNullElse(
        fromModule, Objects.requireNonNullElse(fromManifest, "unpackaged"));
  }

  /**
   * Does what {@link #supports} promises.
   *
   * @param feature what the backend is to do
   * @return whether it can
   */
  protected abstract boolean has(Feature feature);

  /**
   * Does what {@link #newUniqueId} promises.
   *
   * @return a new id
   */
  protected abstract UniqueId createUniqueId();

  /**
   * Does what {@link #closeUniqueId} promises.
   *
   * @param id an id that this backend has made
   */
  protected abstract void closeId(UniqueId id);

  /**
   * {@return an unconnected communicator; the arguments are checked}
   *
   * @param id the id that all ranks share
   * @param worldSize the number of ranks
   * @param rank this rank
   * @param device the index of the device that this rank uses
   * @param config timeout, name and whether blocking
   */
  protected abstract Communicator newCommunicator(
      UniqueId id, int worldSize, int rank, int device, CommunicatorConfig config);

  /**
   * {@return an unconnected communicator that will join one that grows; the arguments are checked}
   *
   * @param growId the id of the grow
   * @param newSize the number of ranks, old and new
   * @param rank this rank
   * @param device the index of the device that this rank uses
   * @param config timeout, name and whether blocking
   */
  protected abstract Communicator newJoining(
      UniqueId growId, int newSize, int rank, int device, CommunicatorConfig config);

  /**
   * Does what {@link #newStream} promises.
   *
   * @param device the index of the device; it exists
   * @return the stream
   */
  protected abstract Stream createStream(int device);

  /**
   * Does what {@link #newEvent} promises.
   *
   * @param device the index of the device; it exists
   * @return the event
   */
  protected abstract Event createEvent(int device);

  /**
   * Does what {@link #allocate} promises.
   *
   * @param device the index of the device; it exists
   * @param type the type of the elements
   * @param count how many elements; 0 or more
   * @return the buffer
   */
  protected abstract Buffer createBuffer(int device, DataType type, long count);

  /**
   * Does what {@link #allocatePinned} promises.
   *
   * @param type the type of the elements
   * @param count how many elements; 0 or more
   * @return the buffer
   */
  protected abstract Buffer createPinnedBuffer(DataType type, long count);

  /**
   * Launches the checked operations of one group, of communicators of this backend; all of them or,
   * if it throws, none to rely on.
   *
   * @param calls the operations, in the order of the calls; at least one. They are the caller's,
   *     who may write others into the list later
   * @param only the one communicator whose calls they are, or null where there may be several
   */
  protected abstract void launchGroup(List<GroupCall> calls, Communicator only);

  /**
   * {@return for the backends, the checked operations that a lambda enqueues, none of them
   * launched}
   *
   * @param body enqueues operations, from this thread
   * @throws IllegalStateException if this thread has a group open, if the lambda makes
   *     communicators or closes what its operations use, or if a stream is being captured
   */
  protected static List<GroupCall> record(Runnable body) {
    return Group.record(body);
  }

  /**
   * For the backends: throws unless there is such a device.
   *
   * @param device the index of the device
   * @throws IllegalArgumentException if there is none of this index
   */
  protected final void checkDevice(int device) {
    Arguments.inRange(device, "device", 0, devices().size() - 1);
  }

  /**
   * For the backends: throws unless this backend is open.
   *
   * @throws IllegalStateException if it is closed
   */
  protected final void checkOpen() {
    if (closed) {
      throw new IllegalStateException("backend is closed: " + this);
    }
  }

  @Override
  public String toString() {
    return "Backend[" + name() + ", " + devices().size() + " devices]";
  }
}
