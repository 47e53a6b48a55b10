package io.nccl4j.nccl;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.NcclException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.Operation;
import io.nccl4j.OperationCall;
import io.nccl4j.ReduceOp;
import io.nccl4j.ShrinkMode;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.UnsupportedNcclVersionException;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.cuda.CudaDevices;
import io.nccl4j.internal.Backoff;
import io.nccl4j.internal.CaptureMode;
import io.nccl4j.internal.Deadline;
import io.nccl4j.internal.NcclResults;
import io.nccl4j.internal.OpenRanks;
import io.nccl4j.internal.PinnedMemory;
import io.nccl4j.internal.PlatformThreads;
import io.nccl4j.internal.cuda.CudaStreamDriver;
import io.nccl4j.internal.util.MemoryShortage;
import io.nccl4j.internal.util.Steps;
import io.nccl4j.spi.Contract;
import io.nccl4j.spi.Memory;
import io.nccl4j.spi.StreamDriver;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.SortedSet;
import java.util.concurrent.CompletionStage;
import java.util.function.Consumer;
import java.util.function.IntSupplier;
import java.util.function.ToIntFunction;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * One rank's {@code ncclComm_t}.
 *
 * <p>The way of a collective: {@link Communicator} checks the arguments, {@link #launch} makes the
 * call of {@link EnqueueCalls} with the buffers' addresses, and {@link NcclResults} turns anything
 * but success into an exception. Addresses are plain numbers, so the call acquires no session and
 * allocates nothing.
 *
 * <p>Several communicators of one device: NCCL's kernels hold a part of the device until their
 * peers come, so operations of two communicators must be enqueued in the same order on all ranks,
 * which two threads that race do not give. {@code NCCL_LAUNCH_ORDER_IMPLICIT=1} in the environment,
 * from NCCL 2.26 on, makes the device keep the order of the calls; the program still has to make
 * them in one order, best from one thread. A child that shares resources ({@link
 * NcclConfig#withSplitShare}, {@link NcclConfig#withShrinkShare}) shares unguarded state of NCCL's
 * with its parent too: not even different threads at different streams may call both at the same
 * time. nccl4j does not notice either; NCCL notices some of it, and answers with an {@link
 * io.nccl4j.NcclInvalidUsageException}.
 *
 * @see <a
 *     href="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/threadsafety.html">Thread
 *     safety</a>
 */
public final class NcclCommunicator extends Communicator {
  private static final Logger LOG = LogManager.getLogger(NcclCommunicator.class);
  // From this code on an operator multiplies.
  private static final int FIRST_SCALING = ReduceOp.AVG.code();
  static final int FLOAT8_COMPUTE_CAPABILITY = 90;

  // How long a close waits for a call in flight before it refuses, and an abort before it ends that
  // call, and after that before it leaves the freeing to the call's thread.
  private static final Duration PATIENCE = Duration.ofMillis(200);
  // A non-blocking call ends by its own deadline; the thread that makes it gets a little more.
  private static final Duration GRACE = Duration.ofSeconds(1);
  private static final double MILLIS_PER_SECOND = 1000;

  private final NcclBackend backend;
  private final NcclConfig settings;
  private final Making making;
  // NCCL does not tell whose rank a communicator is: this is by whose and which call it was made,
  // which comes in the same order on every rank.
  private final Object world;
  private final Object cohort;
  // Counts as this rank as long as kernels may run, also when this object was forgotten.
  private final Object openRank = new Object();
  private final CommunicatorHandle handle = new CommunicatorHandle(this);
  private final Registrations registrations = new Registrations(this);
  private final Windows windows;
  private final Children children;
  private final Suspension suspension = new Suspension(this);
  private volatile boolean revokedByNccl;
  private volatile boolean overdue;
  // Whether ncclCommDestroy has freed the communicator.
  private volatile boolean freed;
  // As NCCL has it; what the configuration says may not be what it is.
  private boolean blocking;
  // Whether operations need no condition of callSafely; known once NCCL has told the size.
  private boolean direct;

  NcclCommunicator(
      NcclBackend backend, NcclConfig settings, int device, int rank, int size, Making making) {
    super(backend, settings.common(), device, rank, size, making.origin());
    making.check(backend.version());
    NativeConfig.check(settings, backend.version());
    this.backend = backend;
    this.settings = settings;
    this.making = making;
    this.world = making.world();
    this.cohort = making.cohort(world);
    this.windows = new Windows(this, registrations, backend.version());
    this.children = new Children(this, backend);
    this.blocking = NativeConfig.blocking(settings);
  }

  /** Returns whether NCCL has made this communicator a blocking one. */
  boolean blocking() {
    return blocking;
  }

  /**
   * {@return a communicator with what only NCCL has}
   *
   * @param communicator a communicator of the NCCL backend
   * @throws IllegalArgumentException if it is of another backend
   */
  public static NcclCommunicator of(Communicator communicator) {
    if (Objects.requireNonNull(communicator, "communicator") instanceof NcclCommunicator nccl) {
      return nccl;
    }
    throw new IllegalArgumentException(
        "communicator is "
            + communicator
            + " of the backend "
            + communicator.backend().name()
            + "; this needs one of the backend nccl");
  }

  /** {@return the configuration that this communicator was made with, NCCL's part included} */
  public NcclConfig settings() {
    return settings;
  }

  /**
   * Makes a new communicator as {@link Communicator#split(int, int, CommunicatorConfig)} does, with
   * what only NCCL can be told, and with what that throws. C: {@code ncclCommSplit}, from NCCL 2.18
   * on.
   *
   * @param color 0 or more: ranks of one color are together
   * @param key orders the new ranks; equal keys keep the order of this communicator
   * @param childSettings the new communicator's configuration; a device is not allowed in it
   * @return the new communicator, for the caller to close; in a {@link io.nccl4j.Group} it is
   *     usable when the group has ended
   * @throws io.nccl4j.UnsupportedNcclVersionException if the library is too old for a setting
   */
  public NcclCommunicator split(int color, int key, NcclConfig childSettings) {
    checkSplit(color, childSettings.common());
    return children.connected(childSettings, new Making.Split(this, color, key));
  }

  /**
   * Makes a new communicator as {@link Communicator#shrink} does, with what only NCCL can be told,
   * and with what that throws. C: {@code ncclCommShrink}, from NCCL 2.27 on.
   *
   * @param excludedRanks the ranks that are left out, at least one, not this one and not all
   * @param mode what becomes of this communicator's operations
   * @param childSettings the new communicator's configuration; a device is not allowed in it
   * @return the new communicator, for the caller to close; in a {@link io.nccl4j.Group} it is
   *     usable when the group has ended
   * @throws io.nccl4j.UnsupportedNcclVersionException if the library is too old
   */
  public NcclCommunicator shrink(
      Set<Integer> excludedRanks, ShrinkMode mode, NcclConfig childSettings) {
    SortedSet<Integer> excluded = checkShrink(excludedRanks, mode, childSettings.common());
    return children.connected(childSettings, new Making.Shrink(this, excluded, mode));
  }

  /**
   * Makes a new communicator as {@link Communicator#grow(int, UniqueId, CommunicatorConfig)} does,
   * with what only NCCL can be told, and with what that throws. C: {@code ncclCommGrow}, from NCCL
   * 2.29.2 on.
   *
   * @param newSize the number of ranks of the new communicator, more than {@link #size}
   * @param id what this communicator's {@link #newGrowId} gave last
   * @param childSettings the new communicator's configuration; a device is not allowed in it
   * @return the new communicator, for the caller to close; in a {@link io.nccl4j.Group} it is
   *     usable when the group has ended
   * @throws io.nccl4j.UnsupportedNcclVersionException if the library is too old
   */
  public NcclCommunicator grow(int newSize, UniqueId id, NcclConfig childSettings) {
    checkGrow(newSize, id, childSettings.common());
    return children.connected(childSettings, new Making.Grow(this, newSize, id));
  }

  /**
   * Makes a new communicator as {@link Communicator#grow(int, CommunicatorConfig)} does, with what
   * only NCCL can be told, and with what that throws. C: {@code ncclCommGrow}, from NCCL 2.29.2 on.
   *
   * @param newSize the number of ranks of the new communicator, more than {@link #size}
   * @param childSettings the new communicator's configuration; a device is not allowed in it
   * @return the new communicator, for the caller to close; in a {@link io.nccl4j.Group} it is
   *     usable when the group has ended
   * @throws io.nccl4j.UnsupportedNcclVersionException if the library is too old
   */
  public NcclCommunicator grow(int newSize, NcclConfig childSettings) {
    checkGrow(newSize, childSettings.common());
    return children.connected(childSettings, new Making.Grow(this, newSize, null));
  }

  /**
   * Makes a new communicator as {@link #split(int, int, NcclConfig)} does, without waiting for it.
   * Until the stage has completed, this communicator is in use.
   *
   * @param color 0 or more: ranks of one color are together
   * @param key orders the new ranks; equal keys keep the order of this communicator
   * @param childSettings the new communicator's configuration; a device is not allowed in it
   * @return a stage that completes with the new communicator, for whoever takes it to close, or
   *     fails as {@code split} does, after the configured timeout at the latest
   * @throws IllegalStateException if this communicator is not open, or this thread has a group open
   */
  public CompletionStage<NcclCommunicator> splitAsync(
      int color, int key, NcclConfig childSettings) {
    checkSplit(color, childSettings.common());
    return children.connectedAsync(childSettings, new Making.Split(this, color, key));
  }

  /**
   * Makes a new communicator as {@link #shrink(Set, ShrinkMode, NcclConfig)} does, without waiting
   * for it. Until the stage has completed, this communicator is in use.
   *
   * @param excludedRanks the ranks that are left out, at least one, not this one and not all
   * @param mode what becomes of this communicator's operations
   * @param childSettings the new communicator's configuration; a device is not allowed in it
   * @return a stage that completes with the new communicator, for whoever takes it to close, or
   *     fails as {@code shrink} does, after the configured timeout at the latest
   * @throws IllegalStateException if this communicator is not open, or this thread has a group open
   */
  public CompletionStage<NcclCommunicator> shrinkAsync(
      Set<Integer> excludedRanks, ShrinkMode mode, NcclConfig childSettings) {
    SortedSet<Integer> excluded = checkShrink(excludedRanks, mode, childSettings.common());
    return children.connectedAsync(childSettings, new Making.Shrink(this, excluded, mode));
  }

  /**
   * Makes a new communicator as {@link #grow(int, UniqueId, NcclConfig)} does, without waiting for
   * it. Until the stage has completed, this communicator is in use.
   *
   * @param newSize the number of ranks of the new communicator, more than {@link #size}
   * @param id what this communicator's {@link #newGrowId} gave last
   * @param childSettings the new communicator's configuration; a device is not allowed in it
   * @return a stage that completes with the new communicator, for whoever takes it to close, or
   *     fails as {@code grow} does, after the configured timeout at the latest
   * @throws IllegalStateException if this communicator carries no operations, or this thread has a
   *     group open
   */
  public CompletionStage<NcclCommunicator> growAsync(
      int newSize, UniqueId id, NcclConfig childSettings) {
    checkGrow(newSize, id, childSettings.common());
    return children.connectedAsync(childSettings, new Making.Grow(this, newSize, id));
  }

  /**
   * Makes a new communicator as {@link #grow(int, NcclConfig)} does, without waiting for it. Until
   * the stage has completed, this communicator is in use.
   *
   * @param newSize the number of ranks of the new communicator, more than {@link #size}
   * @param childSettings the new communicator's configuration; a device is not allowed in it
   * @return a stage that completes with the new communicator, for whoever takes it to close, or
   *     fails as {@code grow} does, after the configured timeout at the latest
   * @throws IllegalStateException if this communicator carries no operations, or this thread has a
   *     group open
   */
  public CompletionStage<NcclCommunicator> growAsync(int newSize, NcclConfig childSettings) {
    checkGrow(newSize, childSettings.common());
    return children.connectedAsync(childSettings, new Making.Grow(this, newSize, null));
  }

  /**
   * Closes as {@link #close} does, without waiting for it: from now on nothing can be done with
   * this communicator.
   *
   * @return a stage that completes when the communicator is gone, or fails as {@code close} does,
   *     within the same time
   */
  public CompletionStage<Void> closeAsync() {
    return closeInBackground();
  }

  /**
   * Ends all operations of this communicator that are enqueued or running here, without giving it
   * up: afterwards it carries none, but can be split, shrunk and closed. Whoever waits for their
   * streams is told as after an {@link #abort}. Idempotent. C: {@code ncclCommRevoke}, from NCCL
   * 2.28.7 on.
   *
   * @throws IllegalStateException if the communicator is not connected, aborted, closed or
   *     suspended
   * @throws io.nccl4j.UnsupportedNcclVersionException if the library is too old
   * @throws NcclTimeoutException if the operations did not end in time
   * @throws NcclException if the library failed; then the communicator carries no operations, but
   *     this can be called again
   */
  public void revoke() {
    backend.version().require("ncclCommRevoke");
    if (revokedByNccl) {
      return;
    }
    if (!revoked()) {
      checkCarries();
    }
    String function = "ncclCommRevoke";
    inside(
        function,
        peers(),
        comm -> {
          endOperations();
          callAndSettle(function, () -> nccl_h.ncclCommRevoke(comm, nccl_h.NCCL_REVOKE_DEFAULT()));
          revokedByNccl = true;
        });
  }

  /**
   * Gives back the GPU memory that NCCL can do without until {@link #resume}; see {@link
   * #memoryStatistics}. Every rank calls it. It first waits until this rank's streams have passed
   * this communicator's operations; until it is resumed, the communicator carries none. C: {@code
   * ncclCommSuspend}, from NCCL 2.29.7 on.
   *
   * @throws IllegalStateException if the communicator carries no operations
   * @throws io.nccl4j.UnsupportedNcclVersionException if the library is too old
   * @throws NcclTimeoutException if operations did not finish, or not all ranks called, in time
   * @throws NcclException if the library failed
   */
  public void suspend() {
    backend.version().require("ncclCommSuspend");
    checkCarries();
    suspension.begin();
  }

  /**
   * Takes back what {@link #suspend} gave, after which the communicator carries operations again.
   * Every rank calls it. C: {@code ncclCommResume}, from NCCL 2.29.7 on.
   *
   * @throws IllegalStateException if the communicator is not suspended
   * @throws io.nccl4j.UnsupportedNcclVersionException if the library is too old
   * @throws NcclTimeoutException if not all ranks called in time
   * @throws NcclException if the library failed, for want of memory for example
   */
  public void resume() {
    backend.version().require("ncclCommResume");
    if (!suspended()) {
      checkCarries();
      throw new IllegalStateException("not suspended: " + this);
    }
    suspension.end();
  }

  /** {@return whether {@link #suspend} has given memory back that {@link #resume} has not taken} */
  public boolean suspended() {
    return suspension.lasts() && open();
  }

  /**
   * {@return how much GPU memory NCCL holds for this communicator} C: {@code ncclCommMemStats},
   * from NCCL 2.29.7 on.
   *
   * @throws IllegalStateException if the communicator is not connected, aborted, closed or revoked
   * @throws io.nccl4j.UnsupportedNcclVersionException if the library is too old
   * @throws NcclException if the library failed
   */
  public MemoryStatistics memoryStatistics() {
    backend.version().require("ncclCommMemStats");
    if (!suspended()) {
      checkCarries();
    }
    return suspension.statistics();
  }

  /** Returns whom a call waits for, for messages. */
  String peers() {
    return "the peers of " + this;
  }

  /** Says that this communicator's operations end, because the next call ends them. */
  void endOperations() {
    markRevoked();
    endGraphs();
  }

  /** Says whether this communicator carries no operations for a while, its memory being away. */
  void carriesNoneForNow(boolean suspended) {
    markSuspended(suspended);
  }

  /** Waits until this rank's streams have passed this communicator's operations. */
  void finishOperations(String function) {
    awaitStreams(function);
  }

  CommunicatorHandle handle() {
    return handle;
  }

  Children children() {
    return children;
  }

  /** Returns whether nobody may use this communicator any more, and it is not freed yet. */
  boolean closing() {
    return !open() && !handle.ended();
  }

  /** Returns this communicator, connected now or when this thread's group ends. */
  NcclCommunicator connected(NcclCommunicator parent) {
    connectNowOrWithGroup(parent);
    return this;
  }

  /** Returns a stage that completes with this communicator when it is connected. */
  CompletionStage<NcclCommunicator> connectedAsync() {
    return connectInBackground().thenApply(nothing -> this);
  }

  @Override
  protected Communicator newSplit(int color, int key, CommunicatorConfig childConfig) {
    int nativeColor = color == NO_COLOR ? nccl_h.NCCL_SPLIT_NOCOLOR() : color;
    return children.unconnected(childConfig, new Making.Split(this, nativeColor, key));
  }

  @Override
  protected Communicator newShrink(
      SortedSet<Integer> excludedRanks, ShrinkMode mode, CommunicatorConfig childConfig) {
    return children.unconnected(childConfig, new Making.Shrink(this, excludedRanks, mode));
  }

  @Override
  protected Communicator newGrown(int newSize, UniqueId id, CommunicatorConfig childConfig) {
    return children.unconnected(childConfig, new Making.Grow(this, newSize, id));
  }

  @Override
  protected UniqueId createGrowId() {
    return children.newGrowId();
  }

  /** Notes that the next call uses the id up, if there is one. */
  void spendGrowId(UniqueId id) {
    useGrowId(id);
  }

  @Override
  protected void connect() {
    making.prepare();
    OpenRanks.opened(cohort, openRank);
    if (making.parent() == null || cohort == Making.GROWN) {
      PinnedMemory.reserveForRanks(device());
    }
    boolean made = false;
    try {
      Deadline.run(making.function(), limit(), "all ranks to join " + this, this::make);
      // A split that leaves this rank out makes nothing, and nobody will close it.
      made = handle.made();
    } finally {
      if (!made) {
        gone();
      }
    }
  }

  private Duration limit() {
    return blocking() ? timeout() : timeout().plus(GRACE);
  }

  private void make() {
    useDevice();
    handle.enterForLong(making.function());
    try (Arena arena = Arena.ofConfined()) {
      making.make(this, NativeConfig.of(settings, backend.version(), arena), arena);
      // NCCL's configuration files may have set the variable meanwhile.
      blocking = NativeConfig.blocking(settings);
      handle.publish();
      if (handle.made()) {
        settle(nccl_h.ncclSuccess(), making.function());
        place(
            number(nccl_h::ncclCommUserRank, "ncclCommUserRank"),
            number(nccl_h::ncclCommCount, "ncclCommCount"));
        direct = blocking() && size() > 1;
        checkDevice(number(nccl_h::ncclCommCuDevice, "ncclCommCuDevice"));
        if (direct) {
          CallWatch.add(this);
        }
      }
    } finally {
      handle.leave();
    }
  }

  /** Prepares a thread of ours for calls of NCCL's. */
  private void useDevice() {
    CudaDevices.use(device());
    CaptureMode.relax();
  }

  /** Reports that no kernel of this communicator can run here any more. Idempotent. */
  private void gone() {
    OpenRanks.closed(cohort, openRank);
  }

  private void checkDevice(int nativeDevice) {
    if (nativeDevice != device()) {
      throw new IllegalStateException(
          this + " was made on device " + nativeDevice + " although another was current");
    }
  }

  /** A query that writes one int. */
  private interface Query {
    int ask(MemorySegment communicator, MemorySegment answer);
  }

  /** Asks NCCL for a number; by the thread that is inside. */
  private int number(Query query, String function) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment answer = arena.allocate(ValueLayout.JAVA_INT);
      NcclResults.check(query.ask(handle.pointer(), answer), function);
      return answer.get(ValueLayout.JAVA_INT, 0);
    }
  }

  @Override
  @SuppressWarnings("exports")
  protected void launch(
      Operation operation,
      Memory send,
      Memory recv,
      long count,
      int op,
      int peer,
      StreamDriver stream) {
    if (!handle.tryEnter(operation.function())) {
      throw handle.refusal(operation.function());
    }
    try {
      long queue = ((CudaStreamDriver) stream).address();
      int result = callAsNeeded(operation, send, recv, count, op, peer, queue);
      if (result != 0) {
        settle(result, operation.function());
      }
    } finally {
      leave();
    }
  }

  @Override
  protected Object world() {
    return world;
  }

  /** Returns what is equal for those ranks of this process that may wait for each other. */
  Object cohort() {
    return cohort;
  }

  /** Lets this thread in until it calls {@link #leave}. */
  void enter(String function) {
    handle.enter(function);
  }

  void leave() {
    handle.leave();
  }

  /** Makes one call of a group, by the thread inside; it answers success or a refusal. */
  void enqueue(OneSided call) {
    int result = make(call);
    if (result != nccl_h.ncclInProgress()) {
      NcclResults.check(result, call.function());
    }
  }

  /** Launches a one-sided operation outside any group. */
  void launch(OneSided call) {
    enter(call.function());
    try {
      int result = make(call);
      if (result != 0) {
        settle(result, call.function());
      }
    } finally {
      leave();
    }
  }

  private int make(OneSided call) {
    return guarded(
        () ->
            call.call(
                handle.pointer(),
                ((CudaStreamDriver) Contract.get().driver(call.stream())).pointer()));
  }

  /** Makes a call during which nobody may ask a non-blocking communicator for its state. */
  int guarded(IntSupplier call) {
    if (blocking()) {
      return call.getAsInt();
    }
    synchronized (handle) {
      return call.getAsInt();
    }
  }

  /** Makes a call by the thread inside, and waits for the end of what it began. */
  void callAndSettle(String function, IntSupplier call) {
    settle(guarded(call), function);
  }

  /** Makes a call that may wait for the peers, and waits for its end, as {@link #inside} does. */
  void callWithDeadline(String function, String waitedFor, ToIntFunction<MemorySegment> call) {
    inside(function, waitedFor, comm -> callAndSettle(function, () -> call.applyAsInt(comm)));
  }

  /**
   * Does inside this communicator what may wait for the peers indefinitely; in a thread of its own,
   * with a deadline.
   */
  void inside(String function, String waitedFor, Consumer<MemorySegment> work) {
    Deadline.run(function, limit(), waitedFor, () -> runInside(function, work));
  }

  /** Does inside this communicator what must not be left half-way; with a deadline. */
  void finishWithDeadline(String function, Consumer<MemorySegment> work) {
    Deadline.runUninterrupted(
        function, timeout(), "NCCL to finish with " + this, () -> runInside(function, work));
  }

  private void runInside(String function, Consumer<MemorySegment> work) {
    useDevice();
    MemorySegment comm = handle.enterForLong(function);
    try {
      work.accept(comm);
    } finally {
      handle.leave();
    }
  }

  /** Makes one call of a group, by the thread inside; it answers success or a refusal. */
  void enqueue(OperationCall call) {
    long stream = ((CudaStreamDriver) call.streamDriver()).address();
    int result =
        callAsNeeded(
            call.operation(),
            call.sendMemory(),
            call.recvMemory(),
            call.count(),
            call.operator(),
            call.peer(),
            stream);
    if (result != nccl_h.ncclInProgress()) {
      NcclResults.check(result, call.operation().function());
    }
  }

  private int callAsNeeded(
      Operation operation, Memory send, Memory recv, long count, int op, int peer, long stream) {
    return direct
        ? call(operation, send, recv, count, op, peer, stream)
        : callSafely(operation, send, recv, count, op, peer, stream);
  }

  /**
   * Calls NCCL under the conditions that it needs beyond one thread at a time: nobody may ask a
   * non-blocking communicator for its state meanwhile, and a communicator of one rank multiplies on
   * whatever device is current.
   */
  private int callSafely(
      Operation operation, Memory send, Memory recv, long count, int op, int peer, long stream) {
    if (size() == 1 && op >= FIRST_SCALING) {
      return CudaDevices.on(
          device(), () -> lockedCall(operation, send, recv, count, op, peer, stream));
    }
    return blocking()
        ? call(operation, send, recv, count, op, peer, stream)
        : lockedCall(operation, send, recv, count, op, peer, stream);
  }

  private int lockedCall(
      Operation operation, Memory send, Memory recv, long count, int op, int peer, long stream) {
    synchronized (handle) {
      return call(operation, send, recv, count, op, peer, stream);
    }
  }

  /** Makes the most frequent call on a way that is short enough to be compiled in one piece. */
  private int call(
      Operation operation, Memory send, Memory recv, long count, int op, int peer, long stream) {
    if (operation == Operation.ALL_REDUCE) {
      return EnqueueCalls.allReduce(
          send.address(), recv.address(), count, send.typeCode(), op, handle.address(), stream);
    }
    return callOther(operation, send, recv, count, op, peer, stream);
  }

  private int callOther(
      Operation operation, Memory send, Memory recv, long count, int op, int peer, long stream) {
    // A buffer that the rank does not use may be missing; NCCL gets the other one, as for an
    // in-place call.
    long from = (send == null ? recv : send).address();
    long to = (recv == null ? send : recv).address();
    int type = (send == null ? recv : send).typeCode();
    long comm = handle.address();
    return switch (operation) {
      case ALL_REDUCE -> throw new AssertionError(operation);
      case BROADCAST ->
          send == recv
              ? EnqueueCalls.bcast(to, count, type, peer, comm, stream)
              : EnqueueCalls.broadcast(from, to, count, type, peer, comm, stream);
      case REDUCE -> EnqueueCalls.reduce(from, to, count, type, op, peer, comm, stream);
      case ALL_GATHER -> EnqueueCalls.allGather(from, to, count, type, comm, stream);
      case REDUCE_SCATTER -> EnqueueCalls.reduceScatter(from, to, count, type, op, comm, stream);
      case SEND -> EnqueueCalls.send(from, count, type, peer, comm, stream);
      case RECV -> EnqueueCalls.recv(to, count, type, peer, comm, stream);
      case ALL_TO_ALL, GATHER, SCATTER ->
          backend.version().has(FirstRelease.EXCHANGES)
              ? exchange(operation, from, to, count, type, peer, comm, stream)
              : exchangeByPeers(operation, send, recv, count, type, peer, stream);
    };
  }

  private static int exchange(
      Operation operation,
      long from,
      long to,
      long count,
      int type,
      int root,
      long comm,
      long stream) {
    return switch (operation) {
      case ALL_TO_ALL -> EnqueueCalls.allToAll(from, to, count, type, comm, stream);
      case GATHER -> EnqueueCalls.gather(from, to, count, type, root, comm, stream);
      default -> EnqueueCalls.scatter(from, to, count, type, root, comm, stream);
    };
  }

  /**
   * What NCCL before 2.28 has no function for: the same movement as one group of sends and
   * receives.
   */
  private int exchangeByPeers(
      Operation operation, Memory send, Memory recv, long count, int type, int root, long stream) {
    boolean sendsAll =
        operation == Operation.ALL_TO_ALL || (operation == Operation.SCATTER && rank() == root);
    boolean receivesAll =
        operation == Operation.ALL_TO_ALL || (operation == Operation.GATHER && rank() == root);
    long comm = handle.address();
    int result = nccl_h.ncclGroupStart();
    if (result != 0) {
      return result;
    }
    for (int peer = 0; peer < size() && result == 0; peer++) {
      if (sendsAll || (operation == Operation.GATHER && peer == root)) {
        long from = slice(send, sendsAll ? peer * count : 0);
        result = EnqueueCalls.send(from, count, type, peer, comm, stream);
      }
      if (result == 0 && (receivesAll || (operation == Operation.SCATTER && peer == root))) {
        long to = slice(recv, receivesAll ? peer * count : 0);
        result = EnqueueCalls.recv(to, count, type, peer, comm, stream);
      }
    }
    int ended = nccl_h.ncclGroupEnd();
    return result == 0 ? ended : result;
  }

  private static long slice(Memory buffer, long offset) {
    return buffer.address() + offset * buffer.type().bytes();
  }

  /**
   * Waits until this communicator has finished what it answered "in progress" for, or success where
   * success does not mean the end; throws for any other answer.
   */
  void settle(int result, String function) {
    if (result != nccl_h.ncclInProgress()) {
      if (result != nccl_h.ncclSuccess() && handle.ended()) {
        throw endedDuring(function);
      }
      NcclResults.check(result, function);
    }
    Backoff backoff = new Backoff(function, timeout());
    while (true) {
      int state = handle.state();
      if (handle.ended()) {
        throw endedDuring(function);
      }
      if (state != nccl_h.ncclInProgress()) {
        NcclResults.check(state, function);
        return;
      }
      if (!backoff.pause()) {
        throw new NcclTimeoutException(function, timeout(), peers());
      }
    }
  }

  /**
   * Tells this rank's communicator of memory that collectives will use, so that NCCL can do without
   * its own buffers. The peers need not do the same. C: {@code ncclCommRegister}, from NCCL 2.19
   * on.
   *
   * @param buffer the memory, of this rank's device, 1 element or more; {@link
   *     NcclBackend#allocateRegistrable} makes some that suits all of NCCL's transports. Its owner
   *     cannot be closed before the registration
   * @return the registration, for the caller to close before the communicator, which otherwise ends
   *     it
   * @throws IllegalArgumentException if the buffer is empty or of another device
   * @throws IllegalStateException if the buffer or the communicator is not open, or another thread
   *     uses the communicator
   * @throws UnsupportedNcclVersionException if NCCL is older
   * @throws NcclException if the library failed, or the configured timeout has passed
   * @throws java.util.concurrent.CancellationException if the waiting thread was interrupted, which
   *     it stays
   */
  public Registration register(Buffer buffer) {
    backend.version().require("ncclCommRegister");
    registrations.check(buffer);
    Registered made = registrations.make(Registration.KIND, buffer, "NCCL to register " + buffer);
    return new Registration(this, registrations, made);
  }

  /**
   * Registers memory together with the other ranks', so that peers reach it directly. Every rank
   * calls this, in the same order, with the same options; it returns when all have, within the
   * configured timeout. It is done at once, also within a group; a thread that drives several ranks
   * uses {@link #registerWindowAsync}. C: {@code ncclCommWindowRegister}, from NCCL 2.27 on.
   *
   * <p>After a timeout the ranks abort their communicators; until then the memory stays held.
   *
   * @param buffer this rank's memory, from {@link NcclBackend#allocateRegistrable} or CUDA's
   *     virtual-memory functions, 1 element or more, at a multiple of 4096 bytes; not in another
   *     open symmetric window of this communicator. Sizes may differ between ranks. Its owner
   *     cannot be closed before the window
   * @param options how it is registered
   * @return the window, for the caller to close before the communicator, which otherwise ends it
   * @throws IllegalArgumentException if the memory cannot be in a window
   * @throws IllegalStateException if the buffer or the communicator is not open, or another thread
   *     uses the communicator
   * @throws UnsupportedNcclVersionException if NCCL is older, or older than an option
   * @throws WindowsUnsupportedException if this communicator has no windows
   * @throws NcclException if the library failed, or not all ranks came in time
   * @throws java.util.concurrent.CancellationException if the waiting thread was interrupted, which
   *     it stays
   */
  public Window registerWindow(Buffer buffer, WindowOption... options) {
    return windows.make(buffer, windows.checkedOptions(buffer, options));
  }

  /**
   * Registers memory as {@link #registerWindow} does, without waiting for it; for ranks whose calls
   * all come from one thread, and for non-blocking communicators. C: {@code
   * ncclCommWindowRegister}, from NCCL 2.27 on.
   *
   * @param buffer as for {@link #registerWindow}
   * @param options as for {@link #registerWindow}
   * @return a stage with the window, for its user to close, or with what {@code registerWindow}
   *     throws after its checks. It ends within the configured timeout, and until then nobody else
   *     may use the communicator; dependents run in a thread of nccl4j's own, or, if it has
   *     completed already, in the one that adds them
   * @throws IllegalArgumentException if the memory cannot be in a window
   * @throws IllegalStateException if the buffer or the communicator is not open
   * @throws UnsupportedNcclVersionException if NCCL is older, or older than an option
   */
  public CompletionStage<Window> registerWindowAsync(Buffer buffer, WindowOption... options) {
    Set<WindowOption> checked = windows.checkedOptions(buffer, options);
    return inBackground("nccl4j-registerWindow", () -> windows.make(buffer, checked));
  }

  /** Throws unless this communicator can be used now. */
  void checkUsable() {
    checkConnected();
  }

  /** Throws unless this rank can use the buffer now. */
  void checkUsable(Buffer buffer, String argument) {
    check(buffer, argument);
  }

  Windows windows() {
    return windows;
  }

  /**
   * Writes data into a peer's window, which that peer need not take part in, and signals it. The
   * peer finds the data when it has waited for the signal with {@link #waitSignal}; puts and
   * signals to one peer arrive in the order of this rank's calls. The source may be written again
   * when the stream has passed. It takes part in groups and captures like a collective. C: {@code
   * ncclPutSignal}, from NCCL 2.29.2 on.
   *
   * <p>The first one-sided operation of a communicator is collective: every rank makes one, or all
   * wait.
   *
   * @param source the data, 1 element or more, in a symmetric window of this communicator
   * @param peer the rank to write to
   * @param window the symmetric window to write to, as this rank registered it
   * @param offset the first element that is written in the peer's window, counted in elements of
   *     the source's type. It is checked against this rank's window; where the peer's is smaller,
   *     it must fit there too
   * @param stream the stream that orders the operation, of this rank's device
   * @throws IllegalArgumentException if an argument does not fit
   * @throws IllegalStateException if anything is closed, or another thread uses the communicator
   * @throws UnsupportedNcclVersionException if NCCL is older
   * @throws NcclException if the library failed, as where the ranks cannot reach each other's
   *     memory
   */
  public void putSignal(Buffer source, int peer, Window window, long offset, Stream stream) {
    backend.version().require("ncclPutSignal");
    submit(OneSided.Put.checked(this, source, peer, window, offset, stream));
  }

  /**
   * Signals a peer without data, after this rank's earlier puts and signals to it. It takes part in
   * groups and captures like a collective; the first of a communicator is collective, as with
   * {@link #putSignal}. C: {@code ncclSignal}, from NCCL 2.29.2 on.
   *
   * @param peer the rank to signal
   * @param stream the stream that orders the operation, of this rank's device
   * @throws IllegalArgumentException if there is no such rank, or the stream does not fit
   * @throws IllegalStateException if anything is closed, or another thread uses the communicator
   * @throws UnsupportedNcclVersionException if NCCL is older
   * @throws NcclException if the library failed, as where the ranks cannot reach each other's
   *     memory
   */
  public void signal(int peer, Stream stream) {
    backend.version().require("ncclSignal");
    checkConnected();
    submit(OneSided.Signal.checked(this, peer, stream));
  }

  /**
   * Lets the stream wait for signals of peers, each of which ends one wait. What they have put
   * before is visible to the stream's later work. It takes part in groups and captures like a
   * collective; the first of a communicator is collective, as with {@link #putSignal}. C: {@code
   * ncclWaitSignal}, from NCCL 2.29.2 on.
   *
   * @param signals how many signals of which peers, each peer once
   * @param stream the stream that waits, of this rank's device
   * @throws IllegalArgumentException if there is no such rank, none at all, or one twice
   * @throws IllegalStateException if anything is closed, or another thread uses the communicator
   * @throws UnsupportedNcclVersionException if NCCL is older
   * @throws NcclException if the library failed, as where the ranks cannot reach each other's
   *     memory
   */
  public void waitSignal(List<ExpectedSignals> signals, Stream stream) {
    backend.version().require("ncclWaitSignal");
    checkConnected();
    submit(OneSided.Wait.checked(this, signals, stream));
  }

  @Override
  protected void checkFloat8(Operation operation, DataType type) {
    backend.version().require(FirstRelease.FLOAT8_DATA, operation.function() + " of " + type);
    if (operation.reduces()) {
      checkFloat8Reduction(type);
    }
  }

  private void checkFloat8Reduction(DataType type) {
    int capability = backend.computeCapability(device());
    if (capability < FLOAT8_COMPUTE_CAPABILITY) {
      throw new IllegalArgumentException(
          "type is %s; reducing it needs compute capability 9.0, device %d has %d.%d"
              .formatted(type, device(), capability / 10, capability % 10));
    }
  }

  @Override
  protected int createOperator(DataType type, double scalar) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment value = arena.allocate(type.bytes(), type.bytes());
      type.set(value, 0, scalar);
      return createOperator(type, value, nccl_h.ncclScalarHostImmediate());
    }
  }

  @Override
  @SuppressWarnings("exports")
  protected int createOperator(Memory scalar) {
    return createOperator(scalar.type(), scalar.pointer(), nccl_h.ncclScalarDevice());
  }

  private int createOperator(DataType type, MemorySegment scalar, int residence) {
    if (type.float8()) {
      backend.version().require(FirstRelease.FLOAT8_DATA, "ncclRedOpCreatePreMulSum of " + type);
    }
    MemorySegment comm = handle.enter("ncclRedOpCreatePreMulSum");
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment operator = arena.allocate(ValueLayout.JAVA_INT);
      int result =
          guarded(
              () ->
                  nccl_h.ncclRedOpCreatePreMulSum(operator, scalar, type.code(), residence, comm));
      NcclResults.check(result, "ncclRedOpCreatePreMulSum");
      return operator.get(ValueLayout.JAVA_INT, 0);
    } finally {
      handle.leave();
    }
  }

  @Override
  protected void destroyOperator(int code) {
    if (!open()) {
      return;
    }
    PlatformThreads.run("ncclRedOpDestroy", () -> destroyInside(code));
  }

  private void destroyInside(int code) {
    MemorySegment comm = handle.enter("ncclRedOpDestroy");
    try {
      NcclResults.check(guarded(() -> nccl_h.ncclRedOpDestroy(code, comm)), "ncclRedOpDestroy");
    } finally {
      handle.leave();
    }
  }

  @Override
  protected Optional<NcclException> findAsyncError() {
    int state = handle.state();
    return state == nccl_h.ncclSuccess() || state == nccl_h.ncclInProgress()
        ? Optional.empty()
        : Optional.of(NcclResults.failure(state, "ncclCommGetAsyncError"));
  }

  @Override
  protected boolean launching() {
    return !blocking() && handle.state() == nccl_h.ncclInProgress();
  }

  /** Returns what a call throws during which this communicator has ended. */
  NcclException endedDuring(String function) {
    return overdue
        ? new NcclTimeoutException(function, timeout(), peers())
        : new CommunicatorAbortedException(function, toString());
  }

  /** Returns whether an abort ends a call that another thread makes to enqueue something. */
  boolean abortEndsCalls() {
    return !blocking() || backend.version().has(FirstRelease.REVOKE);
  }

  /**
   * Does what can be done about a call that has lasted for the timeout.
   *
   * @param call the handle's number of it
   */
  void endOverdueCall(int call) {
    if (!abortEndsCalls()) {
      LOG.warn(
          "{}: {} has been inside NCCL for {} s; NCCL {} has no function that ends such a call, while {} has one and non-blocking communicators need none",
          this,
          handle.enqueuingFunction(),
          timeout().toMillis() / MILLIS_PER_SECOND,
          backend.version(),
          FirstRelease.REVOKE.version());
      return;
    }
    Deadline.start("abort", () -> abortOverdue(call));
  }

  private void abortOverdue(int call) {
    String function = handle.enqueuingFunction();
    boolean said = false;
    // The call may return after all.
    while (handle.enqueuing() == call) {
      overdue = true;
      try {
        if (!said) {
          LOG.warn(
              "{}: {} has been inside NCCL for {} s; the communicator is aborted",
              this,
              function,
              timeout().toMillis() / MILLIS_PER_SECOND);
          said = true;
        }
        abort();
        return;
      } catch (RuntimeException failure) {
        LOG.warn("{}: the abort of an overdue call has failed", this, failure);
        return;
      } catch (OutOfMemoryError shortage) {
        // The thread inside the call waits for this one, and nothing else would abort it later.
        MemoryShortage.pause();
      }
    }
    overdue = false;
  }

  @Override
  protected void abortConnection() {
    handle.end(PATIENCE);
    endBlockedCall();
    freeIfNobodyInside();
  }

  /**
   * Ends the call of a thread that is still inside a blocking communicator to enqueue something.
   * What makes children, registers and the like is left alone, since NCCL's revoke could meet
   * memory that it frees; it has a deadline and a thread of its own.
   */
  private void endBlockedCall() {
    String function = handle.enqueuingFunction();
    if (function == null || !blocking()) {
      return;
    }
    if (!abortEndsCalls()) {
      LOG.warn(
          "{}: a thread is inside {}, which NCCL {} cannot end; it frees the communicator when it returns",
          this,
          function,
          backend.version());
      return;
    }
    MemorySegment comm = handle.hold();
    if (comm == null) {
      return;
    }
    try {
      Deadline.runUninterrupted(
          "ncclCommRevoke",
          timeout(),
          "NCCL to end " + function + " of " + this,
          () -> revoke(comm));
    } catch (NcclException failure) {
      LOG.warn(
          "{}: NCCL did not end {}; its thread frees the communicator when it returns",
          this,
          function,
          failure);
    }
  }

  private void revoke(MemorySegment comm) {
    try {
      useDevice();
      NcclResults.check(
          nccl_h.ncclCommRevoke(comm, nccl_h.NCCL_REVOKE_DEFAULT()), "ncclCommRevoke");
    } finally {
      // The other thread leaves first, and need not wait for the freeing: it may have a capture to
      // drop, which NCCL waits for then.
      handle.awaitNobody(PATIENCE);
      handle.release();
    }
  }

  /** Aborts the ended communicator unless a thread is inside, which then does so when it leaves. */
  void freeIfNobodyInside() {
    MemorySegment comm = handle.take();
    if (comm != null) {
      abort(comm);
    }
  }

  private void abort(MemorySegment comm) {
    try {
      Deadline.runUninterrupted(
          "ncclCommAbort",
          timeout(),
          "NCCL to free " + this,
          () -> {
            if (!handle.beginFreeing()) {
              return;
            }
            useDevice();
            int result = nccl_h.ncclCommAbort(comm);
            registrations.forgetAll();
            Steps.all(
                List.of(
                    this::gone,
                    () -> NcclResults.check(result, "ncclCommAbort"),
                    children::freeLate));
          });
    } catch (NcclTimeoutException e) {
      LOG.warn("{}: NCCL did not end the abort; its thread stays", this, e);
    } catch (Error failure) {
      handle.giveBackUnlessFreeing();
      throw failure;
    }
  }

  @Override
  protected void closeConnection() {
    if (!handle.made()) {
      return;
    }
    if (aborted() && !revokedByNccl) {
      // Its operations were ended by a shrink, or by a revoke that failed: there is nothing to
      // finish.
      abortConnection();
      return;
    }
    try {
      if (!revokedByNccl) {
        finishBeforeClose();
      }
      endGraphs();
      Deadline.runUninterrupted(
          "ncclCommDestroy",
          timeout().plus(GRACE),
          peers() + ", or the end of a CUDA graph that other code has captured operations in",
          this::finalizeAndDestroy);
    } catch (RuntimeException failure) {
      abortAfter(failure);
      throw failure;
    } finally {
      if (freed) {
        gone();
      }
    }
  }

  private void finishBeforeClose() {
    // A stream on which an operation has failed never comes to its end.
    findAsyncError()
        .ifPresent(
            failure -> {
              throw failure;
            });
    awaitStreams("close");
  }

  private void abortAfter(RuntimeException failure) {
    markAborted();
    Steps.after(failure, this::abortConnection);
  }

  /**
   * Ends the communicator when its streams are done, so that a blocking finalize has nothing to
   * wait for. A revoked one must not be finalized.
   */
  private void finalizeAndDestroy() {
    useDevice();
    MemorySegment comm = handle.enterToEnd("ncclCommFinalize", PATIENCE);
    int result;
    try {
      registrations.closeAll(comm);
      if (suspension.lasts()) {
        suspension.endInside(comm);
      }
      if (!revokedByNccl) {
        callAndSettle("ncclCommFinalize", () -> nccl_h.ncclCommFinalize(comm));
      }
      result = nccl_h.ncclCommDestroy(handle.takeInside());
    } finally {
      handle.leave();
    }
    if (result != nccl_h.ncclSuccess() && result != nccl_h.ncclUnhandledCudaError()) {
      throw abortedAfterDestroy(NcclResults.failure(result, "ncclCommDestroy"));
    }
    // A CUDA failure can come after NCCL has freed the communicator, from making the thread's
    // device current again: an abort could be of memory that is others' by now. Nothing uses what
    // the communicator knew, since it has been finalized or revoked.
    freed = true;
    if (aborted()) {
      // The caller has given up waiting, or will not look.
      gone();
    }
    registrations.forgetAll();
    children.freeLate();
    NcclResults.check(result, "ncclCommDestroy");
  }

  /** Frees by an abort what NCCL has refused to destroy, of which it has freed nothing. */
  private NcclException abortedAfterDestroy(NcclException refusal) {
    handle.giveBack();
    Steps.after(refusal, this::freeIfNobodyInside);
    return refusal;
  }
}
