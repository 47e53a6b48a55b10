package io.nccl4j.nccl;

import io.nccl4j.DataType;
import io.nccl4j.NcclException;
import io.nccl4j.Operation;
import io.nccl4j.ShrinkMode;
import io.nccl4j.UniqueId;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.internal.cuda.OpenRanks;
import io.nccl4j.internal.cuda.PinnedMemory;
import io.nccl4j.internal.ffm.PlatformThreads;
import io.nccl4j.spi.Awaited;
import io.nccl4j.spi.BufferMemory;
import io.nccl4j.spi.CallCount;
import io.nccl4j.spi.CommunicatorContext;
import io.nccl4j.spi.CommunicatorDriver;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import java.util.SortedSet;
import java.util.function.Supplier;
import java.util.function.ToIntBiFunction;
import java.util.function.ToIntFunction;

/**
 * The driver of one rank's {@code ncclComm_t}. It connects the communicator and delegates the rest.
 */
final class NcclCommunicatorDriver implements CommunicatorDriver {
  static final int FLOAT8_COMPUTE_CAPABILITY = 90;

  private final CommunicatorHandle handle;
  private final CommunicatorContext context;
  private final int computeCapability;
  private final NcclConfig config;
  private final CommInit init;
  // NCCL does not expose which communicator a rank belongs to. This key identifies the call that
  // created it, which is the same call in the same order on every rank.
  private final Object communicatorKey;
  private final Object cohort;
  private final OptionalLong hash;
  // Represents this rank while its kernels may run, even after this object has become unreachable.
  private final Object openRank = new Object();
  private final Registrations registrations;
  private final NativeChildren children;
  private final Suspension suspension;
  private final CommunicatorEnd end;

  /**
   * Creates the driver of a communicator that is not connected yet.
   *
   * @param computeCapability the compute capability of the communicator's device, such as 90
   */
  NcclCommunicatorDriver(
      NcclVersion library,
      int computeCapability,
      NcclConfig config,
      CommInit init,
      CommunicatorContext context) {
    init.check(library);
    NativeConfig.check(config, library);
    this.computeCapability = computeCapability;
    this.config = config;
    this.init = init;
    this.context = context;
    this.handle =
        new CommunicatorHandle(context, library, NativeConfig.blocking(config), this::abortNative);
    this.communicatorKey = init.communicatorKey();
    this.cohort = init.cohort(communicatorKey);
    this.hash = init.hash();
    this.registrations = new Registrations(handle);
    this.children = new NativeChildren(handle, communicatorKey, cohort, hash);
    this.suspension = new Suspension(handle);
    this.end =
        new CommunicatorEnd(handle, registrations, suspension, children, this::noMoreKernels);
  }

  NcclConfig config() {
    return config;
  }

  CommunicatorHandle handle() {
    return handle;
  }

  void callNative(String function, ToIntFunction<MemorySegment> call) {
    context.checkConnected();
    MemorySegment comm = handle.enter(function);
    try {
      handle.callAndSettle(function, () -> call.applyAsInt(comm));
    } finally {
      handle.leave();
    }
  }

  Registrations registrations() {
    return registrations;
  }

  NativeChildren children() {
    return children;
  }

  Suspension suspension() {
    return suspension;
  }

  CommunicatorEnd end() {
    return end;
  }

  @Override
  public CommunicatorDriver split(int color, int key, CommunicatorContext child) {
    int nativeColor = color == NO_COLOR ? nccl_h.NCCL_SPLIT_NOCOLOR() : color;
    return inheriting(new CommInit.Split(children, nativeColor, key), child);
  }

  @Override
  public Optional<Set<Integer>> lostRanks() {
    return Optional.empty();
  }

  @Override
  public CommunicatorDriver shrink(
      SortedSet<Integer> excludedRanks, ShrinkMode mode, CommunicatorContext child) {
    return inheriting(new CommInit.Shrink(children, excludedRanks, mode), child);
  }

  @Override
  public CommunicatorDriver grow(int newSize, UniqueId id, CommunicatorContext child) {
    return inheriting(new CommInit.Grow(children, newSize, id), child);
  }

  /** Returns a child that inherits its parent's NCCL-specific settings. */
  private CommunicatorDriver inheriting(CommInit childInit, CommunicatorContext child) {
    return driver(config.withCommon(child.config()), childInit, child);
  }

  /** Returns a child with NCCL-specific settings that differ from its parent's. */
  CommunicatorDriver configured(NcclConfig config, CommInit childInit, CommunicatorContext child) {
    NativeConfig.checkName(config, handle.library());
    return driver(config, childInit, child);
  }

  private CommunicatorDriver driver(
      NcclConfig config, CommInit childInit, CommunicatorContext child) {
    // A child has its parent's device.
    return new NcclCommunicatorDriver(
        handle.library(), computeCapability, config, childInit, child);
  }

  @Override
  public UniqueId newGrowId() {
    return children.newGrowId();
  }

  @Override
  public void connect() {
    init.prepare();
    OpenRanks.opened(cohort, openRank);
    if (init.children() == null || cohort == CommInit.GROWN) {
      PinnedMemory.reserveForRanks(context.device());
    }
    boolean created = false;
    try {
      handle.inside(init.function(), "all ranks to join " + this, none -> initialize());
      // A split that excludes this rank creates no communicator to close.
      created = handle.created();
    } finally {
      if (!created) {
        noMoreKernels();
      }
    }
  }

  private void initialize() {
    try (Arena arena = Arena.ofConfined()) {
      init.initialize(handle, NativeConfig.of(config, handle.library(), arena), arena);
      // NCCL's configuration files may have set the variable in the meantime.
      handle.publish(NativeConfig.blocking(config));
      if (handle.created()) {
        handle.settle(nccl_h.ncclSuccess(), init.function());
        context.setRank(
            number(nccl_h::ncclCommUserRank, "ncclCommUserRank"),
            number(nccl_h::ncclCommCount, "ncclCommCount"));
        checkDevice(number(nccl_h::ncclCommCuDevice, "ncclCommCuDevice"));
        if (context.size() > 1) {
          CallWatch.add(end);
        }
      }
    }
  }

  /** Records that no kernel of this communicator can run in this process any more. Idempotent. */
  private void noMoreKernels() {
    OpenRanks.closed(cohort, openRank);
  }

  private void checkDevice(int nativeDevice) {
    if (nativeDevice != context.device()) {
      throw new IllegalStateException(
          this + " was created on device " + nativeDevice + "; its device is " + context.device());
    }
  }

  /** Queries an integer from NCCL. Called by the thread inside the handle. */
  private int number(ToIntBiFunction<MemorySegment, MemorySegment> query, String function) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment answer = arena.allocate(ValueLayout.JAVA_INT);
      NcclResults.check(query.applyAsInt(handle.pointer(), answer), function);
      return answer.get(ValueLayout.JAVA_INT, 0);
    }
  }

  @Override
  public Object communicatorKey() {
    return communicatorKey;
  }

  @Override
  public void checkFloat8(Operation operation, DataType type) {
    handle.library().require(FeatureVersions.FLOAT8_DATA, operation.function() + " of " + type);
    if (operation.reduces() && computeCapability < FLOAT8_COMPUTE_CAPABILITY) {
      throw new IllegalArgumentException(
          "type is %s; reducing it needs compute capability 9.0, device %d has %d.%d"
              .formatted(type, context.device(), computeCapability / 10, computeCapability % 10));
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
  public int createOperator(BufferMemory scalar) {
    return createOperator(scalar.type(), scalar.pointer(), nccl_h.ncclScalarDevice());
  }

  private int createOperator(DataType type, MemorySegment scalar, int residence) {
    String function = "ncclRedOpCreatePreMulSum";
    if (type.float8()) {
      handle.library().require(FeatureVersions.FLOAT8_DATA, function + " of " + type);
    }
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment operator = arena.allocate(ValueLayout.JAVA_INT);
      handle.call(
          function,
          comm -> nccl_h.ncclRedOpCreatePreMulSum(operator, scalar, type.code(), residence, comm));
      return operator.get(ValueLayout.JAVA_INT, 0);
    }
  }

  @Override
  public void destroyOperator(int code) {
    if (!context.isOpen()) {
      return;
    }
    String function = "ncclRedOpDestroy";
    PlatformThreads.run(
        function, () -> handle.call(function, comm -> nccl_h.ncclRedOpDestroy(code, comm)));
  }

  @Override
  public Optional<NcclException> asyncError() {
    return handle.asyncError();
  }

  @Override
  public Optional<Awaited> awaited(Operation operation, Supplier<CallCount> calls) {
    return new RasQuery(context.rank(), operation, calls).ask(handle.library(), context, hash);
  }

  @Override
  public boolean launching() {
    return !handle.blocking() && handle.asyncResult() == nccl_h.ncclInProgress();
  }

  @Override
  public boolean revoke() {
    return end.tryRevoke();
  }

  @Override
  public void abort() {
    end.abort();
  }

  private void abortNative(MemorySegment comm) {
    end.abortNative(comm);
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
