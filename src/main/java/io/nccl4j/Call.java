package io.nccl4j;

import io.nccl4j.spi.BackendOperation;
import io.nccl4j.spi.BufferMemory;
import io.nccl4j.spi.CommunicatorDriver;
import io.nccl4j.spi.EnqueuedCall;
import io.nccl4j.spi.StreamDriver;

/**
 * A validated call of one rank that a stream orders. A {@link Group} keeps it until the group ends,
 * a {@link Graph} until the graph is closed.
 *
 * @param operation the operation, or null if only one backend has it
 * @param backendOperation the operation that only one backend has, or null. It writes only memory
 *     of other ranks
 * @param send the data to send, or null if the operation or the rank sends none
 * @param recv the destination, or null if the operation or the rank receives nothing
 * @param count the count that the C function takes, in elements
 * @param op the operator of a reduction, or null
 * @param peer the root or the peer, or {@link CommunicatorDriver#NO_PEER}
 */
record Call(
    Operation operation,
    BackendOperation backendOperation,
    CommunicatorCore communicator,
    Buffer send,
    Buffer recv,
    long count,
    ReduceOp op,
    int peer,
    Stream stream)
    implements EnqueuedCall {

  /** Checks the stream and the type; the caller has checked the other arguments. */
  static Call of(
      Operation operation,
      CommunicatorCore communicator,
      Buffer send,
      Buffer recv,
      long count,
      ReduceOp op,
      int peer,
      Stream stream) {
    communicator.checkStream(stream);
    DataType type = (send == null ? recv : send).type();
    if (type.float8()) {
      communicator.driver().checkFloat8(operation, type);
    }
    return new Call(operation, null, communicator, send, recv, count, op, peer, stream);
  }

  /** Checks the communicator and the stream; the backend has checked the operation. */
  static Call of(
      BackendOperation operation, CommunicatorCore communicator, Buffer source, Stream stream) {
    communicator.checkConnected();
    communicator.checkStream(stream);
    return new Call(
        null, operation, communicator, source, null, 0, null, CommunicatorDriver.NO_PEER, stream);
  }

  /** Returns the same call on another stream of the same device. */
  Call on(Stream other) {
    return new Call(operation, backendOperation, communicator, send, recv, count, op, peer, other);
  }

  /** Returns the name of the method that made the call, for messages. */
  String method() {
    return operation == null ? backendOperation.method() : operation.method();
  }

  /** Returns whether every rank of the communicator makes the call. */
  boolean collective() {
    return operation != null && !operation.pointToPoint();
  }

  /** Returns {@code send}, or null if only the root's is read and this rank is not the root. */
  Buffer reads() {
    return operation == Operation.BROADCAST && !ofRoot() ? null : send;
  }

  /**
   * Returns {@code recv}, or null if it is not written: on ranks other than the root of a reduce,
   * and on the root of an in-place broadcast or scatter.
   */
  Buffer writes() {
    return switch (operation) {
      case REDUCE -> ofRoot() ? recv : null;
      case BROADCAST, SCATTER -> ofRoot() && inPlace() ? null : recv;
      case null, default -> recv;
    };
  }

  /** Returns the memory from which the call reads its operator's scalar, or null. */
  Buffer scalar() {
    return op == null ? null : op.scalar();
  }

  private boolean ofRoot() {
    return peer == communicator.rank();
  }

  /** Returns whether both buffers share memory, which validation allows only for in-place calls. */
  private boolean inPlace() {
    return send.overlaps(send.byteSize(), recv, recv.byteSize());
  }

  /** Returns whether this is a given operation of a rank with itself as the peer. */
  boolean isWithItself(Operation what, CommunicatorCore caller) {
    return operation == what && communicator == caller && ofRoot();
  }

  /**
   * Checks again the objects that the call uses, except its stream.
   *
   * @throws IllegalStateException if one has been closed since the call was made
   */
  void checkStillOpen() {
    communicator.checkConnected();
    if (backendOperation != null) {
      if (send != null) {
        communicator.checkUsable(send, "source");
      }
      backendOperation.checkOpen();
      return;
    }
    if (op != null) {
      op.check(communicator, (send == null ? recv : send).type());
    }
    if (send != null) {
      send.checkOpen("send");
    }
    if (recv != null) {
      recv.checkOpen("recv");
    }
  }

  /** Counts the call, which has been enqueued on a stream, and records its memory there. */
  void trackOperands(Stream on) {
    if (operation != null) {
      communicator.launched(byteSize());
    }
    on.trackOperands(send, recv, scalar());
  }

  /** Returns the size of the larger buffer: that of all ranks' elements, where only one has it. */
  private long byteSize() {
    long sent = send == null ? 0 : send.byteSize();
    return recv == null ? sent : Math.max(sent, recv.byteSize());
  }

  @Override
  public CommunicatorDriver communicatorDriver() {
    return communicator.driver();
  }

  @Override
  public StreamDriver streamDriver() {
    return stream.driver();
  }

  @Override
  public BufferMemory sendMemory() {
    return send == null ? null : send.memory();
  }

  @Override
  public BufferMemory recvMemory() {
    return recv == null ? null : recv.memory();
  }

  @Override
  public int operator() {
    return op == null ? CommunicatorDriver.NO_OPERATOR : op.code();
  }
}
