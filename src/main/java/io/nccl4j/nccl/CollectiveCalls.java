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

/**
 * Calls the NCCL function that enqueues one operation. Called by the thread inside the
 * communicator. Addresses are plain numbers, so that a call acquires no session and allocates
 * nothing.
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
    long stream = ((CudaStreamDriver) call.streamDriver()).address();
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
      long stream) {
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
      long stream) {
    if (handle.context().size() == 1 && op >= FIRST_SCALING) {
      return CurrentDevice.call(
          handle.context().device(),
          () -> lockedCall(operation, send, recv, count, op, peer, stream));
    }
    return handle.blocking()
        ? makeCall(operation, send, recv, count, op, peer, stream)
        : lockedCall(operation, send, recv, count, op, peer, stream);
  }

  private int lockedCall(
      Operation operation,
      BufferMemory send,
      BufferMemory recv,
      long count,
      int op,
      int peer,
      long stream) {
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
      long stream) {
    if (operation == Operation.ALL_REDUCE) {
      return CollectiveDowncalls.allReduce(
          send.address(), recv.address(), count, send.typeCode(), op, handle.address(), stream);
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
      long stream) {
    // A buffer that the rank does not use may be null. NCCL gets the other one, as for an in-place
    // call.
    long from = (send == null ? recv : send).address();
    long to = (recv == null ? send : recv).address();
    int type = (send == null ? recv : send).typeCode();
    long comm = handle.address();
    return switch (operation) {
      case ALL_REDUCE -> throw new AssertionError(operation);
      case BROADCAST ->
          send == recv
              ? CollectiveDowncalls.bcast(to, count, type, peer, comm, stream)
              : CollectiveDowncalls.broadcast(from, to, count, type, peer, comm, stream);
      case REDUCE -> CollectiveDowncalls.reduce(from, to, count, type, op, peer, comm, stream);
      case ALL_GATHER -> CollectiveDowncalls.allGather(from, to, count, type, comm, stream);
      case REDUCE_SCATTER ->
          CollectiveDowncalls.reduceScatter(from, to, count, type, op, comm, stream);
      case SEND -> CollectiveDowncalls.send(from, count, type, peer, comm, stream);
      case RECV -> CollectiveDowncalls.recv(to, count, type, peer, comm, stream);
      case ALL_TO_ALL, GATHER, SCATTER ->
          handle.library().has(FeatureVersions.EXCHANGES)
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
      case ALL_TO_ALL -> CollectiveDowncalls.allToAll(from, to, count, type, comm, stream);
      case GATHER -> CollectiveDowncalls.gather(from, to, count, type, root, comm, stream);
      default -> CollectiveDowncalls.scatter(from, to, count, type, root, comm, stream);
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
      long stream) {
    CommunicatorContext context = handle.context();
    boolean sendsAll =
        operation == Operation.ALL_TO_ALL
            || (operation == Operation.SCATTER && context.rank() == root);
    boolean receivesAll =
        operation == Operation.ALL_TO_ALL
            || (operation == Operation.GATHER && context.rank() == root);
    long comm = handle.address();
    int result = nccl_h.ncclGroupStart();
    if (result != 0) {
      return result;
    }
    for (int peer = 0; peer < context.size() && result == 0; peer++) {
      if (sendsAll || (operation == Operation.GATHER && peer == root)) {
        long from = slice(send, sendsAll ? peer * count : 0);
        result = CollectiveDowncalls.send(from, count, type, peer, comm, stream);
      }
      if (result == 0 && (receivesAll || (operation == Operation.SCATTER && peer == root))) {
        long to = slice(recv, receivesAll ? peer * count : 0);
        result = CollectiveDowncalls.recv(to, count, type, peer, comm, stream);
      }
    }
    int ended = nccl_h.ncclGroupEnd();
    return result == 0 ? ended : result;
  }

  private static long slice(BufferMemory buffer, long offset) {
    return buffer.address() + offset * buffer.type().bytes();
  }
}
