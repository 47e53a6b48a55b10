package io.nccl4j.nccl;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.GroupCall;
import io.nccl4j.NcclException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.Operation;
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
  private static final int FLOAT8_COMPUTE_CAPABILITY = 90;

  private final NcclBackend backend;
  private final Maker maker;
  // NCCL may write the handle late, after a call that has answered "in progress" or was given up:
  // eight bytes that stay.
  private final MemorySegment handleCell = Arena.global().allocate(ValueLayout.ADDRESS);
  private volatile MemorySegment handle = MemorySegment.NULL;
  private final Object handleLock = new Object();
  private volatile boolean destroying;
  private boolean released;

  /**
   * The native call that makes this rank's communicator, given where to write it and how it is
   * configured.
   */
  private interface Maker {
    int make(MemorySegment cell, MemorySegment config, Arena arena);

    /** Returns the communicator whose state tells whether the making goes on. */
    NcclCommunicator polled(NcclCommunicator made);

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
    public int make(MemorySegment cell, MemorySegment config, Arena arena) {
      MemorySegment bytes =
          ncclUniqueId.allocate(arena).copyFrom(MemorySegment.ofArray(id.toBytes()));
      return nccl_h.ncclCommInitRankConfig(cell, size, bytes, rank, config);
    }

    @Override
    public NcclCommunicator polled(NcclCommunicator made) {
      return made;
    }

    @Override
    public String function() {
      return "ncclCommInitRankConfig";
    }
  }

  private record Split(NcclCommunicator parent, int color, int key) implements Maker {
    @Override
    public int make(MemorySegment cell, MemorySegment config, Arena arena) {
      return nccl_h.ncclCommSplit(parent.handle, color, key, cell, config);
    }

    @Override
    public NcclCommunicator polled(NcclCommunicator made) {
      return parent;
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
    Deadline.run(
        maker.function(),
        timeout(),
        "all ranks to join " + this,
        () -> CudaDevices.on(device(), this::make));
  }

  private Void make() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment config = NativeConfig.of(config(), backend.version(), arena);
      int result = maker.make(handleCell, config, arena);
      if (result == nccl_h.ncclInProgress()) {
        settle(maker.polled(this), maker.function());
      } else {
        NcclResults.check(result, maker.function());
      }
    }
    handle = handleInCell();
    if (handle.address() != 0) {
      settle(maker.function());
      place(
          number(nccl_h::ncclCommUserRank, "ncclCommUserRank"),
          number(nccl_h::ncclCommCount, "ncclCommCount"));
      int nativeDevice = number(nccl_h::ncclCommCuDevice, "ncclCommCuDevice");
      if (nativeDevice != device()) {
        throw new IllegalStateException(
            this + " was made on device " + nativeDevice + " although another was current");
      }
    }
    return null;
  }

  /** A query that writes one int. */
  private interface Query {
    int ask(MemorySegment communicator, MemorySegment answer);
  }

  private int number(Query query, String function) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment answer = arena.allocate(ValueLayout.JAVA_INT);
      NcclResults.check(query.ask(handle, answer), function);
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
    int result = call(operation, send, recv, count, op, peer, ((CudaStream) stream).pointer());
    if (result != 0) {
      if (result != nccl_h.ncclInProgress()) {
        throw NcclResults.failure(result, operation.function());
      }
      settle(operation.function());
    }
  }

  /**
   * Makes one call of a group; what it answers before the group's end is either success or a
   * refusal.
   */
  void enqueue(GroupCall call) {
    MemorySegment stream = ((CudaStream) call.stream()).pointer();
    int result =
        call(
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
    MemorySegment comm = handle;
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
          backend.version().atLeast(NcclVersion.V2_28)
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
        result = nccl_h.ncclSend(from, count, type, peer, handle, stream);
      }
      if (result == 0 && (receivesAll || (operation == Operation.SCATTER && peer == root))) {
        MemorySegment to = slice(recv, receivesAll ? peer * count : 0);
        result = nccl_h.ncclRecv(to, count, type, peer, handle, stream);
      }
    }
    int ended = nccl_h.ncclGroupEnd();
    return result == 0 ? ended : result;
  }

  private static MemorySegment slice(Buffer buffer, long offset) {
    return MemorySegment.ofAddress(buffer.pointer().address() + offset * buffer.type().bytes());
  }

  /** Waits until this communicator has finished what it answered "in progress" for. */
  void settle(String function) {
    settle(this, function);
  }

  private void settle(NcclCommunicator polled, String function) {
    Backoff backoff = new Backoff(function, timeout());
    int state = polled.asyncState();
    while (state == nccl_h.ncclInProgress()) {
      if (aborted() || polled.aborted()) {
        throw new CommunicatorAbortedException(function, toString());
      }
      if (!backoff.pause()) {
        throw new NcclTimeoutException(function, timeout(), "the peers of " + this);
      }
      state = polled.asyncState();
    }
    NcclResults.check(state, function);
  }

  /**
   * Returns the state of the communicator; success once it has been aborted or destroyed. The lock
   * keeps an abort, which may come from any thread, from freeing it beneath the question.
   */
  private int asyncState() {
    synchronized (handleLock) {
      MemorySegment communicator = handle.address() == 0 ? handleInCell() : handle;
      if (released) {
        return nccl_h.ncclSuccess();
      }
      if (communicator.address() == 0) {
        return nccl_h.ncclInProgress();
      }
      try (Arena arena = Arena.ofConfined()) {
        MemorySegment state = arena.allocate(ValueLayout.JAVA_INT);
        NcclResults.check(
            nccl_h.ncclCommGetAsyncError(communicator, state), "ncclCommGetAsyncError");
        return state.get(ValueLayout.JAVA_INT, 0);
      }
    }
  }

  private MemorySegment handleInCell() {
    return handleCell.get(ValueLayout.ADDRESS, 0);
  }

  /** From here on nobody asks this communicator anything; returns it, to be freed. */
  private MemorySegment release() {
    synchronized (handleLock) {
      released = true;
      // While connecting, the cell has the communicator as soon as NCCL has made it.
      return handleInCell();
    }
  }

  @Override
  protected void checkFloat8Reduction(DataType type) {
    backend.version().require(NcclVersion.V2_24, "reduction of " + type);
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
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment operator = arena.allocate(ValueLayout.JAVA_INT);
      NcclResults.check(
          nccl_h.ncclRedOpCreatePreMulSum(operator, scalar, type.code(), residence, handle),
          "ncclRedOpCreatePreMulSum");
      return operator.get(ValueLayout.JAVA_INT, 0);
    }
  }

  @Override
  protected void destroyOperator(int code) {
    if (open()) {
      NcclResults.check(nccl_h.ncclRedOpDestroy(code, handle), "ncclRedOpDestroy");
    }
  }

  @Override
  protected Optional<NcclException> findAsyncError() {
    int state = asyncState();
    return state == nccl_h.ncclSuccess() || state == nccl_h.ncclInProgress()
        ? Optional.empty()
        : Optional.of(NcclResults.failure(state, "ncclCommGetAsyncError"));
  }

  @Override
  protected void abortConnection() {
    MemorySegment communicator = release();
    if (communicator.address() == 0) {
      return;
    }
    try {
      end(
          "ncclCommAbort",
          () -> NcclResults.check(nccl_h.ncclCommAbort(communicator), "ncclCommAbort"));
    } catch (NcclTimeoutException e) {
      LOG.warn("{}: NCCL did not end the abort; its thread stays", this, e);
    }
  }

  @Override
  protected void closeConnection() {
    if (handle.address() == 0) {
      return;
    }
    try {
      end("ncclCommDestroy", this::finalizeAndDestroy);
    } catch (NcclTimeoutException e) {
      // Once NCCL is freeing the communicator, nothing else may touch it.
      if (!destroying) {
        abortConnection();
      }
      throw e;
    }
  }

  private void finalizeAndDestroy() {
    int result = nccl_h.ncclCommFinalize(handle);
    if (result == nccl_h.ncclInProgress()) {
      settle("ncclCommFinalize");
    } else {
      NcclResults.check(result, "ncclCommFinalize");
    }
    destroying = true;
    NcclResults.check(nccl_h.ncclCommDestroy(release()), "ncclCommDestroy");
  }

  private void end(String function, Runnable call) {
    Deadline.run(
        function,
        timeout(),
        "the peers of " + this,
        () ->
            CudaDevices.on(
                device(),
                () -> {
                  call.run();
                  return null;
                }));
  }
}
