package io.nccl4j.nccl;

import io.nccl4j.Buffer;
import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.DataType;
import io.nccl4j.NcclException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.Operation;
import io.nccl4j.ShrinkMode;
import io.nccl4j.UniqueId;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.internal.BlockingCalls;
import io.nccl4j.internal.CaptureMode;
import io.nccl4j.internal.NcclResults;
import io.nccl4j.internal.OpenRanks;
import io.nccl4j.internal.PinnedMemory;
import io.nccl4j.internal.PlatformThreads;
import io.nccl4j.internal.cuda.CudaStreamDriver;
import io.nccl4j.internal.cuda.CurrentDevice;
import io.nccl4j.internal.util.Backoff;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.spi.CommunicatorContext;
import io.nccl4j.spi.CommunicatorDriver;
import io.nccl4j.spi.EnqueuedOperation;
import io.nccl4j.spi.Memory;
import io.nccl4j.spi.StreamDriver;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.Optional;
import java.util.SortedSet;
import java.util.function.Consumer;
import java.util.function.IntSupplier;
import java.util.function.ToIntFunction;

/**
 * One rank's {@code ncclComm_t}.
 *
 * <p>The way of a collective: {@link io.nccl4j.Communicator} checks the arguments, {@link #launch}
 * has {@link CollectiveCalls} make the call with the buffers' addresses, and {@link NcclResults}
 * turns anything but success into an exception. Addresses are plain numbers, so the call acquires
 * no session and allocates nothing.
 */
final class NcclCommunicatorDriver implements CommunicatorDriver {
  static final int FLOAT8_COMPUTE_CAPABILITY = 90;

  // A non-blocking call ends by its own deadline; the thread that makes it gets a little more.
  static final Duration GRACE = Duration.ofSeconds(1);

  private final NcclBackendDriver backend;
  private final CommunicatorContext context;
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
  private final CollectiveCalls calls;
  private final Suspension suspension = new Suspension(this);
  private final CommunicatorEnd end;
  private volatile boolean revokedByNccl;
  // As NCCL has it; what the configuration says may not be what it is.
  private boolean blocking;
  // Whether operations need no condition of callSafely; known once NCCL has told the size.
  private boolean direct;

  NcclCommunicatorDriver(
      NcclBackendDriver backend, NcclConfig settings, Making making, CommunicatorContext context) {
    making.check(backend.version());
    NativeConfig.check(settings, backend.version());
    this.backend = backend;
    this.settings = settings;
    this.making = making;
    this.context = context;
    this.world = making.world();
    this.cohort = making.cohort(world);
    this.windows = new Windows(this, registrations, backend.version());
    this.children = new Children(this, backend);
    this.calls = new CollectiveCalls(this, handle, backend.version());
    this.end = new CommunicatorEnd(this, context, handle, backend.version());
    this.blocking = NativeConfig.blocking(settings);
  }

  /** Returns whether NCCL has made this communicator a blocking one. */
  boolean blocking() {
    return blocking;
  }

  NcclConfig settings() {
    return settings;
  }

  int device() {
    return context.device();
  }

  int rank() {
    return context.rank();
  }

  int size() {
    return context.size();
  }

  Duration timeout() {
    return context.config().timeout();
  }

  /** Returns whether operations need no condition beyond one thread at a time. */
  boolean direct() {
    return direct;
  }

  boolean revokedByNccl() {
    return revokedByNccl;
  }

  Suspension suspension() {
    return suspension;
  }

  CommunicatorContext context() {
    return context;
  }

  void revoke() {
    require("ncclCommRevoke");
    if (revokedByNccl) {
      return;
    }
    if (!context.revoked()) {
      context.checkConnected();
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

  void suspend() {
    require("ncclCommSuspend");
    context.checkConnected();
    suspension.begin();
  }

  void resume() {
    require("ncclCommResume");
    if (!suspended()) {
      context.checkConnected();
      throw new IllegalStateException("not suspended: " + this);
    }
    suspension.end();
  }

  boolean suspended() {
    return suspension.lasts() && context.open();
  }

  MemoryStatistics memoryStatistics() {
    require("ncclCommMemStats");
    if (!suspended()) {
      context.checkConnected();
    }
    return suspension.statistics();
  }

  /** Throws unless the loaded library has a function. */
  void require(String function) {
    backend.version().require(function);
  }

  /** Returns whom a call waits for, for messages. */
  String peers() {
    return "the peers of " + this;
  }

  /** Says that this communicator's operations end, because the next call ends them. */
  void endOperations() {
    context.markRevoked();
    context.endGraphs();
  }

  CommunicatorHandle handle() {
    return handle;
  }

  Children children() {
    return children;
  }

  /** Returns whether nobody may use this communicator any more, and it is not freed yet. */
  boolean closing() {
    return !context.open() && !handle.ended();
  }

  @Override
  public CommunicatorDriver split(int color, int key, CommunicatorContext child) {
    int nativeColor = color == NO_COLOR ? nccl_h.NCCL_SPLIT_NOCOLOR() : color;
    return children.inheriting(new Making.Split(this, nativeColor, key), child);
  }

  @Override
  public CommunicatorDriver shrink(
      SortedSet<Integer> excludedRanks, ShrinkMode mode, CommunicatorContext child) {
    return children.inheriting(new Making.Shrink(this, excludedRanks, mode), child);
  }

  @Override
  public CommunicatorDriver grow(int newSize, UniqueId id, CommunicatorContext child) {
    return children.inheriting(new Making.Grow(this, newSize, id), child);
  }

  @Override
  public UniqueId newGrowId() {
    return children.newGrowId();
  }

  @Override
  public void connect() {
    making.prepare();
    OpenRanks.opened(cohort, openRank);
    if (making.parent() == null || cohort == Making.GROWN) {
      PinnedMemory.reserveForRanks(device());
    }
    boolean made = false;
    try {
      BlockingCalls.run(making.function(), limit(), "all ranks to join " + this, this::make);
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
        context.place(
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
  void useDevice() {
    CurrentDevice.set(device());
    CaptureMode.relax();
  }

  /** Reports that no kernel of this communicator can run here any more. Idempotent. */
  void gone() {
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
  public void launch(
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
      int result = calls.call(operation, send, recv, count, op, peer, queue);
      if (result != 0) {
        settle(result, operation.function());
      }
    } finally {
      leave();
    }
  }

  @Override
  public Object world() {
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
  void enqueue(OneSided call, StreamDriver stream) {
    int result = make(call, stream);
    if (result != nccl_h.ncclInProgress()) {
      NcclResults.check(result, call.function());
    }
  }

  /** Launches a one-sided operation outside any group. */
  void launch(OneSided call, StreamDriver stream) {
    enter(call.function());
    try {
      int result = make(call, stream);
      if (result != 0) {
        settle(result, call.function());
      }
    } finally {
      leave();
    }
  }

  private int make(OneSided call, StreamDriver stream) {
    return guarded(() -> call.call(handle.pointer(), ((CudaStreamDriver) stream).pointer()));
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
    BlockingCalls.run(function, limit(), waitedFor, () -> runInside(function, work));
  }

  /** Does inside this communicator what must not be left half-way; with a deadline. */
  void finishWithDeadline(String function, Consumer<MemorySegment> work) {
    BlockingCalls.runUninterrupted(
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
  void enqueue(EnqueuedOperation call) {
    long stream = ((CudaStreamDriver) call.streamDriver()).address();
    int result =
        calls.call(
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
    Backoff backoff = Backoff.betweenQueries(Deadline.after(timeout()));
    while (true) {
      int state = handle.state();
      if (handle.ended()) {
        throw endedDuring(function);
      }
      if (state != nccl_h.ncclInProgress()) {
        NcclResults.check(state, function);
        return;
      }
      if (!BlockingCalls.pause(backoff, function)) {
        throw new NcclTimeoutException(function, timeout(), peers());
      }
    }
  }

  Registered register(Buffer buffer) {
    require("ncclCommRegister");
    registrations.check(buffer);
    return registrations.make(Registration.KIND, buffer, "NCCL to register " + buffer);
  }

  Registrations registrations() {
    return registrations;
  }

  Windows windows() {
    return windows;
  }

  @Override
  public void checkFloat8(Operation operation, DataType type) {
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
  public int createOperator(DataType type, double scalar) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment value = arena.allocate(type.bytes(), type.bytes());
      type.set(value, 0, scalar);
      return createOperator(type, value, nccl_h.ncclScalarHostImmediate());
    }
  }

  @Override
  public int createOperator(Memory scalar) {
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
  public void destroyOperator(int code) {
    if (!context.open()) {
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
  public Optional<NcclException> asyncError() {
    int state = handle.state();
    return state == nccl_h.ncclSuccess() || state == nccl_h.ncclInProgress()
        ? Optional.empty()
        : Optional.of(NcclResults.failure(state, "ncclCommGetAsyncError"));
  }

  @Override
  public boolean launching() {
    return !blocking() && handle.state() == nccl_h.ncclInProgress();
  }

  /** Returns what a call throws during which this communicator has ended. */
  NcclException endedDuring(String function) {
    return end.overdue()
        ? new NcclTimeoutException(function, timeout(), peers())
        : new CommunicatorAbortedException(function, toString());
  }

  /** Returns whether an abort ends a call that another thread makes to enqueue something. */
  boolean abortEndsCalls() {
    return !blocking() || backend.version().has(FirstRelease.REVOKE);
  }

  /** Does what can be done about a call that has lasted for the timeout. */
  void endOverdueCall(int call) {
    end.endOverdueCall(call);
  }

  @Override
  public void abort() {
    end.abort();
  }

  /** Aborts the ended communicator unless a thread is inside, which then does so when it leaves. */
  void freeIfNobodyInside() {
    end.freeIfNobodyInside();
  }

  @Override
  public void close() {
    end.close();
  }

  @Override
  public String toString() {
    return context.toString();
  }
}
