package io.nccl4j.nccl;

import io.nccl4j.Operation;
import io.nccl4j.ReduceOp;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.internal.NcclResults;
import io.nccl4j.internal.cuda.CudaStreamDriver;
import io.nccl4j.internal.cuda.CurrentDevice;
import io.nccl4j.spi.BufferMemory;
import io.nccl4j.spi.CommunicatorContext;
import io.nccl4j.spi.EnqueuedOperation;
import java.lang.foreign.MemorySegment;

/**
 * Calls the NCCL function that enqueues one operation. Called by the thread inside the
 * communicator. Pointers are segments of the global scope, so that a call acquires no session.
 */
final class CollectiveCalls {
  // The first operator code that scales its operands.
  private static final int FIRST_SCALING = ReduceOp.AVG.code();

  private final CommunicatorHandle handle;

  CollectiveCalls(CommunicatorHandle handle) {
    this.handle = handle;
  }

  /** Makes one call of a group. */
  void enqueue(EnqueuedOperation call) {
    MemorySegment stream = ((CudaStreamDriver) call.streamDriver()).pointer();
    int result =
        call(
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

  /** Makes a call and returns NCCL's result code. */
  int call(
      Operation operation,
      BufferMemory send,
      BufferMemory recv,
      long count,
      int op,
      int peer,
      MemorySegment stream) {
    return handle.direct()
        ? makeCall(operation, send, recv, count, op, peer, stream)
        : callSafely(operation, send, recv, count, op, peer, stream);
  }

  /**
   * Calls NCCL with two extra guarantees: no thread queries the state of a non-blocking
   * communicator during the call, and the communicator's device is current for a scaling reduction
   * of one rank, which NCCL runs on the current device.
   */
  private int callSafely(
      Operation operation,
      BufferMemory send,
      BufferMemory recv,
      long count,
      int op,
      int peer,
      MemorySegment stream) {
    if (handle.context().size() == 1 && op >= FIRST_SCALING) {
      return CurrentDevice.call(
          handle.context().device(),
          () -> guardedCall(operation, send, recv, count, op, peer, stream));
    }
    return guardedCall(operation, send, recv, count, op, peer, stream);
  }

  private int guardedCall(
      Operation operation,
      BufferMemory send,
      BufferMemory recv,
      long count,
      int op,
      int peer,
      MemorySegment stream) {
    if (handle.blocking()) {
      return makeCall(operation, send, recv, count, op, peer, stream);
    }
    synchronized (handle) {
      return makeCall(operation, send, recv, count, op, peer, stream);
    }
  }

  /** Dispatches the call. The most frequent one takes a path short enough for full inlining. */
  private int makeCall(
      Operation operation,
      BufferMemory send,
      BufferMemory recv,
      long count,
      int op,
      int peer,
      MemorySegment stream) {
    if (operation == Operation.ALL_REDUCE) {
      return nccl_h.ncclAllReduce(
          send.pointer(), recv.pointer(), count, send.type().code(), op, handle.pointer(), stream);
    }
    return callOther(operation, send, recv, count, op, peer, stream);
  }

  private int callOther(
      Operation operation,
      BufferMemory send,
      BufferMemory recv,
      long count,
      int op,
      int peer,
      MemorySegment stream) {
    // A buffer that the rank does not use may be null. NCCL gets the other one, as for an in-place
    // call.
    MemorySegment from = (send == null ? recv : send).pointer();
    MemorySegment to = (recv == null ? send : recv).pointer();
    int type = (send == null ? recv : send).type().code();
    MemorySegment comm = handle.pointer();
    return switch (operation) {
      case ALL_REDUCE -> throw new AssertionError(operation);
      case BROADCAST ->
          send == recv
              ? nccl_h.ncclBcast(to, count, type, peer, comm, stream)
              : nccl_h.ncclBroadcast(from, to, count, type, peer, comm, stream);
      case REDUCE -> nccl_h.ncclReduce(from, to, count, type, op, peer, comm, stream);
      case ALL_GATHER -> nccl_h.ncclAllGather(from, to, count, type, comm, stream);
      case REDUCE_SCATTER -> nccl_h.ncclReduceScatter(from, to, count, type, op, comm, stream);
      case SEND -> nccl_h.ncclSend(from, count, type, peer, comm, stream);
      case RECV -> nccl_h.ncclRecv(to, count, type, peer, comm, stream);
      case ALL_TO_ALL, GATHER, SCATTER ->
          handle.library().has(FeatureVersions.EXCHANGES)
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

  /** Implements an exchange as one group of sends and receives, for NCCL before 2.28. */
  private int exchangeByPeers(
      Operation operation,
      BufferMemory send,
      BufferMemory recv,
      long count,
      int type,
      int root,
      MemorySegment stream) {
    CommunicatorContext context = handle.context();
    boolean sendsAll =
        operation == Operation.ALL_TO_ALL
            || (operation == Operation.SCATTER && context.rank() == root);
    boolean receivesAll =
        operation == Operation.ALL_TO_ALL
            || (operation == Operation.GATHER && context.rank() == root);
    MemorySegment comm = handle.pointer();
    int result = nccl_h.ncclGroupStart();
    if (result != 0) {
      return result;
    }
    for (int peer = 0; peer < context.size() && result == 0; peer++) {
      if (sendsAll || (operation == Operation.GATHER && peer == root)) {
        MemorySegment from = slice(send, sendsAll ? peer * count : 0);
        result = nccl_h.ncclSend(from, count, type, peer, comm, stream);
      }
      if (result == 0 && (receivesAll || (operation == Operation.SCATTER && peer == root))) {
        MemorySegment to = slice(recv, receivesAll ? peer * count : 0);
        result = nccl_h.ncclRecv(to, count, type, peer, comm, stream);
      }
    }
    int ended = nccl_h.ncclGroupEnd();
    return result == 0 ? ended : result;
  }

  private static MemorySegment slice(BufferMemory buffer, long offset) {
    return MemorySegment.ofAddress(buffer.address() + offset * buffer.type().bytes());
  }
}
