package io.nccl4j;

import io.nccl4j.spi.BufferMemory;
import io.nccl4j.spi.CommunicatorDriver;
import io.nccl4j.spi.EnqueuedOperation;
import io.nccl4j.spi.StreamDriver;

/** A validated operation that every backend has. */
final class CheckedOperation implements CheckedCall, EnqueuedOperation {
  private final Operation operation;
  private final CommunicatorCore communicator;
  private final Buffer send;
  private final Buffer recv;
  private final long count;
  private final ReduceOp op;
  private final int peer;
  private final Stream stream;

  CheckedOperation(
      Operation operation,
      CommunicatorCore communicator,
      Buffer send,
      Buffer recv,
      long count,
      ReduceOp op,
      int peer,
      Stream stream) {
    this.operation = operation;
    this.communicator = communicator;
    this.send = send;
    this.recv = recv;
    this.count = count;
    this.op = op;
    this.peer = peer;
    this.stream = stream;
  }

  @Override
  public Operation operation() {
    return operation;
  }

  @Override
  public CommunicatorCore communicator() {
    return communicator;
  }

  /** Returns the data to send, or null if the operation or the rank sends none. */
  Buffer send() {
    return send;
  }

  /** Returns the destination, or null if the operation or the rank receives nothing. */
  Buffer recv() {
    return recv;
  }

  @Override
  public long count() {
    return count;
  }

  /** Returns the operator of a reduction, or null. */
  ReduceOp op() {
    return op;
  }

  @Override
  public int peer() {
    return peer;
  }

  @Override
  public Stream stream() {
    return stream;
  }

  @Override
  public BufferMemory sendMemory() {
    return memory(send);
  }

  @Override
  public BufferMemory recvMemory() {
    return memory(recv);
  }

  @Override
  public CommunicatorDriver communicatorDriver() {
    return communicator.driver();
  }

  static BufferMemory memory(Buffer buffer) {
    return buffer == null ? null : buffer.memory();
  }

  @Override
  public int operator() {
    return operator(op);
  }

  static int operator(ReduceOp op) {
    return op == null ? CommunicatorDriver.NO_OPERATOR : op.code();
  }

  @Override
  public StreamDriver streamDriver() {
    return stream.driver();
  }

  @Override
  public String method() {
    return operation.method();
  }

  /** {@return {@code send}, or null if only the root's is read and this rank is not the root} */
  @Override
  public Buffer reads() {
    return operation == Operation.BROADCAST && !ofRoot() ? null : send;
  }

  /**
   * {@return {@code recv}, or null if it is not written: on ranks other than the root of a reduce,
   * and on the root of an in-place broadcast or scatter}
   */
  @Override
  public Buffer writes() {
    return switch (operation) {
      case REDUCE -> ofRoot() ? recv : null;
      case BROADCAST, SCATTER -> ofRoot() && inPlace() ? null : recv;
      default -> recv;
    };
  }

  @Override
  public Buffer scalar() {
    return op == null ? null : op.scalar();
  }

  private boolean ofRoot() {
    return peer == communicator.rank();
  }

  /** Returns whether this is the given operation of a rank with itself as the peer. */
  boolean isWithItself(Operation what, CommunicatorCore caller) {
    return operation == what && communicator == caller && ofRoot();
  }

  /** Returns whether both buffers share memory, which validation allows only for in-place calls. */
  private boolean inPlace() {
    return send.overlaps(send.byteSize(), recv, recv.byteSize());
  }

  /** Counts the call in its communicator and returns its sequence number. */
  long takeNumber() {
    return communicator.numbers().count(operation, peer);
  }

  /** Undoes {@link #takeNumber}, since the call was rejected. */
  void returnNumber() {
    communicator.numbers().uncount(operation, peer);
  }

  @Override
  public CheckedOperation on(Stream other) {
    return other == stream
        ? this
        : new CheckedOperation(operation, communicator, send, recv, count, op, peer, other);
  }

  @Override
  public void checkOperandsOpen() {
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

  @Override
  public void trackOperands(Stream on) {
    on.trackOperands(send, recv, scalar());
  }
}
