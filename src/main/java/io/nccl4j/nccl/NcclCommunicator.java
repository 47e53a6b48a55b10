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
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.bindings.nccl.ncclUniqueId;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.cuda.CudaDevices;
import io.nccl4j.cuda.CudaStream;
import io.nccl4j.internal.Backoff;
import io.nccl4j.internal.Deadline;
import io.nccl4j.internal.NcclResults;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.Optional;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * One rank's {@code ncclComm_t}.
 *
 * <p>The way of a collective: {@link Communicator} checks the arguments, {@link #launch} calls the
 * generated binding with the buffers' addresses, and {@link NcclResults} turns anything but success
 * into an exception. Addresses are of the global scope, so the call acquires no session and
 * allocates nothing.
 */
public final class NcclCommunicator extends Communicator {
  private static final Logger LOG = LogManager.getLogger(NcclCommunicator.class);
  static final int FLOAT8_COMPUTE_CAPABILITY = 90;

  // How long an abort waits for a call in flight before it leaves the freeing to that call's
  // thread.
  private static final Duration ABORT_PATIENCE = Duration.ofMillis(200);
  // A non-blocking call ends by its own deadline; the thread that makes it gets a little more.
  private static final Duration GRACE = Duration.ofSeconds(1);

  private final NcclBackend backend;
  private final Maker maker;
  private final CommunicatorHandle handle = new CommunicatorHandle(this);

  /**
   * The native call that makes this rank's communicator; by the thread that is inside its handle.
   */
  private interface Maker {
    void make(NcclCommunicator made, MemorySegment config, Arena arena);

    String function();
  }

  private NcclCommunicator(
      NcclBackend backend, CommunicatorConfig config, int device, int rank, int size, Maker maker) {
    super(backend, config, device, rank, size);
    this.backend = backend;
    this.maker = maker;
  }

  static NcclCommunicator ofRank(
      NcclBackend backend, CommunicatorConfig config, int device, UniqueId id, int size, int rank) {
    return new NcclCommunicator(backend, config, device, rank, size, new InitRank(id, size, rank));
  }

  private record InitRank(UniqueId id, int size, int rank) implements Maker {
    @Override
    public void make(NcclCommunicator made, MemorySegment config, Arena arena) {
      MemorySegment bytes =
          ncclUniqueId.allocate(arena).copyFrom(MemorySegment.ofArray(id.toBytes()));
      int result = nccl_h.ncclCommInitRankConfig(made.handle.cell(), size, bytes, rank, config);
      made.settle(result, function());
    }

    @Override
    public String function() {
      return "ncclCommInitRankConfig";
    }
  }

  private record Split(NcclCommunicator parent, int color, int key) implements Maker {
    @Override
    public void make(NcclCommunicator made, MemorySegment config, Arena arena) {
      MemorySegment handle = parent.handle.enter(function());
      try {
        int result = nccl_h.ncclCommSplit(handle, color, key, made.handle.cell(), config);
        // A pending split may answer success too, and writes the new pointer when the parent is
        // done.
        parent.settle(result, function());
      } finally {
        parent.handle.leave();
      }
    }

    @Override
    public String function() {
      return "ncclCommSplit";
    }
  }

  @Override
  protected Communicator newSplit(int color, int key, CommunicatorConfig childConfig) {
    int nativeColor = color == NO_COLOR ? nccl_h.NCCL_SPLIT_NOCOLOR() : color;
    return new NcclCommunicator(
        backend, childConfig, device(), -1, -1, new Split(this, nativeColor, key));
  }

  @Override
  protected void connect() {
    String waitedFor = "all ranks to join " + this;
    Duration limit = config().blocking() ? timeout() : timeout().plus(GRACE);
    Deadline.run(maker.function(), limit, waitedFor, this::make);
  }

  private void make() {
    CudaDevices.use(device());
    handle.enter(maker.function());
    try (Arena arena = Arena.ofConfined()) {
      maker.make(this, NativeConfig.of(config(), backend.version(), arena), arena);
      handle.publish();
      if (handle.made()) {
        settle(nccl_h.ncclSuccess(), maker.function());
        place(
            number(nccl_h::ncclCommUserRank, "ncclCommUserRank"),
            number(nccl_h::ncclCommCount, "ncclCommCount"));
        checkDevice(number(nccl_h::ncclCommCuDevice, "ncclCommCuDevice"));
      }
    } finally {
      handle.leave();
    }
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
  protected void launch(
      Operation operation,
      Buffer send,
      Buffer recv,
      long count,
      ReduceOp op,
      int peer,
      Stream stream) {
    enter(operation.function());
    try {
      MemorySegment to = ((CudaStream) stream).pointer();
      int result = callSafely(operation, send, recv, count, op, peer, to);
      if (result != 0) {
        settle(result, operation.function());
      }
    } finally {
      leave();
    }
  }

  /** Lets this thread in until it calls {@link #leave}. */
  void enter(String function) {
    handle.enter(function);
  }

  void leave() {
    handle.leave();
  }

  /** Makes one call of a group, by the thread inside; it answers success or a refusal. */
  void enqueue(OperationCall call) {
    MemorySegment stream = ((CudaStream) call.stream()).pointer();
    int result =
        callSafely(
            call.operation(),
            call.send(),
            call.recv(),
            call.count(),
            call.op(),
            call.peer(),
            stream);
    if (result != nccl_h.ncclInProgress()) {
      NcclResults.check(result, call.operation().function());
    }
  }

  /**
   * Calls NCCL under the conditions that it needs beyond one thread at a time: nobody may ask a
   * non-blocking communicator for its state meanwhile, and a communicator of one rank multiplies on
   * whatever device is current.
   */
  private int callSafely(
      Operation operation,
      Buffer send,
      Buffer recv,
      long count,
      ReduceOp op,
      int peer,
      MemorySegment stream) {
    if (size() == 1 && op != null && op.code() >= ReduceOp.AVG.code()) {
      return CudaDevices.on(
          device(), () -> lockedCall(operation, send, recv, count, op, peer, stream));
    }
    return config().blocking()
        ? call(operation, send, recv, count, op, peer, stream)
        : lockedCall(operation, send, recv, count, op, peer, stream);
  }

  private int lockedCall(
      Operation operation,
      Buffer send,
      Buffer recv,
      long count,
      ReduceOp op,
      int peer,
      MemorySegment stream) {
    synchronized (handle) {
      return call(operation, send, recv, count, op, peer, stream);
    }
  }

  private int call(
      Operation operation,
      Buffer send,
      Buffer recv,
      long count,
      ReduceOp op,
      int peer,
      MemorySegment stream) {
    // A buffer that the rank does not use may be missing; NCCL gets the other one, as for an
    // in-place call.
    MemorySegment from = (send == null ? recv : send).pointer();
    MemorySegment to = (recv == null ? send : recv).pointer();
    int type = (send == null ? recv : send).type().code();
    MemorySegment comm = handle.pointer();
    return switch (operation) {
      case ALL_REDUCE -> nccl_h.ncclAllReduce(from, to, count, type, op.code(), comm, stream);
      case BROADCAST ->
          send == recv
              ? nccl_h.ncclBcast(to, count, type, peer, comm, stream)
              : nccl_h.ncclBroadcast(from, to, count, type, peer, comm, stream);
      case REDUCE -> nccl_h.ncclReduce(from, to, count, type, op.code(), peer, comm, stream);
      case ALL_GATHER -> nccl_h.ncclAllGather(from, to, count, type, comm, stream);
      case REDUCE_SCATTER ->
          nccl_h.ncclReduceScatter(from, to, count, type, op.code(), comm, stream);
      case SEND -> nccl_h.ncclSend(from, count, type, peer, comm, stream);
      case RECV -> nccl_h.ncclRecv(to, count, type, peer, comm, stream);
      case ALL_TO_ALL, GATHER, SCATTER ->
          backend.version().has(FirstRelease.EXCHANGES)
              ? exchange(operation, from, to, count, type, peer, comm, stream)
              : exchangeByPeers(operation, send, recv, count, type, peer, stream);
    };
  }

  private static int exchange(
      Operation operation,
      MemorySegment from,
      MemorySegment to,
      long count,
      int type,
      int root,
      MemorySegment comm,
      MemorySegment stream) {
    return switch (operation) {
      case ALL_TO_ALL -> nccl_h.ncclAlltoAll(from, to, count, type, comm, stream);
      case GATHER -> nccl_h.ncclGather(from, to, count, type, root, comm, stream);
      default -> nccl_h.ncclScatter(from, to, count, type, root, comm, stream);
    };
  }

  /**
   * What NCCL before 2.28 has no function for: the same movement as one group of sends and
   * receives.
   */
  private int exchangeByPeers(
      Operation operation,
      Buffer send,
      Buffer recv,
      long count,
      int type,
      int root,
      MemorySegment stream) {
    boolean sendsAll =
        operation == Operation.ALL_TO_ALL || (operation == Operation.SCATTER && rank() == root);
    boolean receivesAll =
        operation == Operation.ALL_TO_ALL || (operation == Operation.GATHER && rank() == root);
    int result = nccl_h.ncclGroupStart();
    if (result != 0) {
      return result;
    }
    for (int peer = 0; peer < size() && result == 0; peer++) {
      if (sendsAll || (operation == Operation.GATHER && peer == root)) {
        MemorySegment from = slice(send, sendsAll ? peer * count : 0);
        result = nccl_h.ncclSend(from, count, type, peer, handle.pointer(), stream);
      }
      if (result == 0 && (receivesAll || (operation == Operation.SCATTER && peer == root))) {
        MemorySegment to = slice(recv, receivesAll ? peer * count : 0);
        result = nccl_h.ncclRecv(to, count, type, peer, handle.pointer(), stream);
      }
    }
    int ended = nccl_h.ncclGroupEnd();
    return result == 0 ? ended : result;
  }

  private static MemorySegment slice(Buffer buffer, long offset) {
    return MemorySegment.ofAddress(buffer.pointer().address() + offset * buffer.type().bytes());
  }

  /**
   * Waits until this communicator has finished what it answered "in progress" for, or success where
   * success does not mean the end; throws for any other answer.
   */
  void settle(int result, String function) {
    if (result != nccl_h.ncclInProgress()) {
      NcclResults.check(result, function);
    }
    Backoff backoff = new Backoff(function, timeout());
    while (true) {
      int state = handle.state();
      if (handle.ended()) {
        throw new CommunicatorAbortedException(function, toString());
      }
      if (state != nccl_h.ncclInProgress()) {
        NcclResults.check(state, function);
        return;
      }
      if (!backoff.pause()) {
        throw new NcclTimeoutException(function, timeout(), "the peers of " + this);
      }
    }
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
  protected int createOperator(Buffer scalar) {
    return createOperator(scalar.type(), scalar.pointer(), nccl_h.ncclScalarDevice());
  }

  private int createOperator(DataType type, MemorySegment scalar, int residence) {
    if (type.float8()) {
      backend.version().require(FirstRelease.FLOAT8_DATA, "ncclRedOpCreatePreMulSum of " + type);
    }
    MemorySegment comm = handle.enter("ncclRedOpCreatePreMulSum");
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment operator = arena.allocate(ValueLayout.JAVA_INT);
      int result = nccl_h.ncclRedOpCreatePreMulSum(operator, scalar, type.code(), residence, comm);
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
    MemorySegment comm = handle.enter("ncclRedOpDestroy");
    try {
      NcclResults.check(nccl_h.ncclRedOpDestroy(code, comm), "ncclRedOpDestroy");
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
  protected void abortConnection() {
    handle.end(ABORT_PATIENCE);
    freeIfNobodyInside();
  }

  /**
   * Aborts the ended communicator unless a thread is inside, which then does so when it leaves.
   * NCCL gives no way to call that thread back from a blocking call.
   */
  void freeIfNobodyInside() {
    MemorySegment comm = handle.take();
    if (comm == null) {
      return;
    }
    try {
      Deadline.runUninterrupted(
          "ncclCommAbort",
          timeout(),
          "NCCL to free " + this,
          () -> {
            CudaDevices.use(device());
            NcclResults.check(nccl_h.ncclCommAbort(comm), "ncclCommAbort");
          });
    } catch (NcclTimeoutException e) {
      LOG.warn("{}: NCCL did not end the abort; its thread stays", this, e);
    }
  }

  @Override
  protected void closeConnection() {
    if (!handle.made()) {
      return;
    }
    try {
      // A stream on which an operation has failed never comes to its end.
      findAsyncError()
          .ifPresent(
              failure -> {
                throw failure;
              });
      awaitStreams();
      Deadline.runUninterrupted(
          "ncclCommDestroy",
          timeout().plus(GRACE),
          "the peers of " + this,
          this::finalizeAndDestroy);
    } catch (RuntimeException failure) {
      abortAfter(failure);
      throw failure;
    }
  }

  private void abortAfter(RuntimeException failure) {
    markAborted();
    try {
      abortConnection();
    } catch (RuntimeException another) {
      failure.addSuppressed(another);
    }
  }

  /**
   * Ends the communicator when its streams are done, so that a blocking finalize has nothing to
   * wait for.
   */
  private void finalizeAndDestroy() {
    CudaDevices.use(device());
    MemorySegment comm = handle.enter("ncclCommFinalize");
    try {
      settle(nccl_h.ncclCommFinalize(comm), "ncclCommFinalize");
      NcclResults.check(nccl_h.ncclCommDestroy(handle.takeInside()), "ncclCommDestroy");
    } finally {
      handle.leave();
    }
  }
}
