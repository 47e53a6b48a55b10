package io.nccl4j.nccl;

import io.nccl4j.Operation;
import io.nccl4j.ReduceOp;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.internal.cuda.CudaStreamDriver;
import io.nccl4j.internal.cuda.CurrentDevice;
import io.nccl4j.spi.BufferMemory;
import io.nccl4j.spi.CommunicatorContext;
import io.nccl4j.spi.EnqueuedCall;
import java.lang.foreign.MemorySegment;
import java.util.EnumSet;
import java.util.Set;

/**
 * Calls the NCCL function of an operation. Pointers are segments of the global scope: Java need not
 * keep one of a narrower scope alive during the call.
 */
final class OperationCalls {
  // The first operator code that scales its operands: the average, then those that programs make.
  private static final int FIRST_SCALING = ReduceOp.AVG.code();

  private static final Set<Operation> EXCHANGES =
      EnumSet.of(Operation.ALL_TO_ALL, Operation.GATHER, Operation.SCATTER);

  private OperationCalls() {}

  /** Returns the name of the function that {@link #call} calls. */
  static String function(EnqueuedCall call) {
    return call.operation() == null ? rma(call).function() : call.operation().function();
  }

  /** Returns the operation of a call that is of no other backend. */
  private static RmaOperation rma(EnqueuedCall call) {
    return (RmaOperation) call.backendOperation();
  }

  /**
   * Makes a call and returns NCCL's result code. Called by the thread inside the communicator.
   *
   * @param handle the communicator of the call
   */
  static int call(EnqueuedCall call, CommunicatorHandle handle) {
    CommunicatorContext context = handle.context();
    if (context.size() == 1 && call.operator() >= FIRST_SCALING) {
      // NCCL runs a scaling reduction of one rank on the current device.
      return CurrentDevice.call(
          context.device(), () -> handle.guarded(() -> callNccl(call, handle)));
    }
    return handle.guarded(() -> callNccl(call, handle));
  }

  private static int callNccl(EnqueuedCall call, CommunicatorHandle handle) {
    MemorySegment comm = handle.pointer();
    MemorySegment stream = ((CudaStreamDriver) call.streamDriver()).pointer();
    Operation operation = call.operation();
    if (operation == null) {
      return rma(call).call(comm, stream);
    }
    if (EXCHANGES.contains(operation) && !handle.library().has(FeatureVersions.EXCHANGES)) {
      return exchangeByPeers(call, handle, stream);
    }
    BufferMemory send = call.sendMemory();
    BufferMemory recv = call.recvMemory();
    // A buffer that the rank does not use may be null. NCCL gets the other one, as for an in-place
    // call.
    MemorySegment from = (send == null ? recv : send).pointer();
    MemorySegment to = (recv == null ? send : recv).pointer();
    int type = (send == null ? recv : send).type().code();
    long count = call.count();
    int op = call.operator();
    int peer = call.peer();
    return switch (operation) {
      case ALL_REDUCE -> nccl_h.ncclAllReduce(from, to, count, type, op, comm, stream);
      case BROADCAST ->
          send == recv
              ? nccl_h.ncclBcast(to, count, type, peer, comm, stream)
              : nccl_h.ncclBroadcast(from, to, count, type, peer, comm, stream);
      case REDUCE -> nccl_h.ncclReduce(from, to, count, type, op, peer, comm, stream);
      case ALL_GATHER -> nccl_h.ncclAllGather(from, to, count, type, comm, stream);
      case REDUCE_SCATTER -> nccl_h.ncclReduceScatter(from, to, count, type, op, comm, stream);
      case SEND -> nccl_h.ncclSend(from, count, type, peer, comm, stream);
      case RECV -> nccl_h.ncclRecv(to, count, type, peer, comm, stream);
      case ALL_TO_ALL -> nccl_h.ncclAlltoAll(from, to, count, type, comm, stream);
      case GATHER -> nccl_h.ncclGather(from, to, count, type, peer, comm, stream);
      case SCATTER -> nccl_h.ncclScatter(from, to, count, type, peer, comm, stream);
    };
  }

  /** Implements an exchange as one group of sends and receives, for NCCL before 2.28. */
  private static int exchangeByPeers(
      EnqueuedCall call, CommunicatorHandle handle, MemorySegment stream) {
    Operation operation = call.operation();
    int root = call.peer();
    int rank = handle.context().rank();
    boolean sendsAll =
        operation == Operation.ALL_TO_ALL || (operation == Operation.SCATTER && rank == root);
    boolean receivesAll =
        operation == Operation.ALL_TO_ALL || (operation == Operation.GATHER && rank == root);
    MemorySegment comm = handle.pointer();
    long count = call.count();
    int result = nccl_h.ncclGroupStart();
    if (result != 0) {
      return result;
    }
    for (int peer = 0; peer < handle.context().size() && result == 0; peer++) {
      if (sendsAll || (operation == Operation.GATHER && peer == root)) {
        BufferMemory send = call.sendMemory();
        MemorySegment from = slice(send, sendsAll ? peer * count : 0);
        result = nccl_h.ncclSend(from, count, send.type().code(), peer, comm, stream);
      }
      if (result == 0 && (receivesAll || (operation == Operation.SCATTER && peer == root))) {
        BufferMemory recv = call.recvMemory();
        MemorySegment to = slice(recv, receivesAll ? peer * count : 0);
        result = nccl_h.ncclRecv(to, count, recv.type().code(), peer, comm, stream);
      }
    }
    int ended = nccl_h.ncclGroupEnd();
    return result == 0 ? ended : result;
  }

  private static MemorySegment slice(BufferMemory buffer, long offset) {
    return MemorySegment.ofAddress(buffer.address() + offset * buffer.type().bytes());
  }
}
