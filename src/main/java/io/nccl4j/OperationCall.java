package io.nccl4j;

import java.util.List;
import java.util.Objects;

/**
 * One operation of the contract, for its backend to launch.
 *
 * <p>A program makes the same calls step after step, so calls are remembered: an all-reduce by its
 * send buffer, those of a group by the thread. What the checks have found of types, counts and
 * memory holds for good; for what may be closed, a call knows at which of the {@link Changes} it
 * was checked.
 */
public final class OperationCall implements GroupCall {
  private final Operation operation;
  private final Communicator communicator;
  private final Buffer send;
  private final Buffer recv;
  private final long count;
  private final ReduceOp op;
  private final int peer;
  private final Stream stream;
  private final Progress progress;
  private final Entrance entrance;
  // Both plain: what any thread reads here was once true, and is compared with what is true now.
  private long checkedAt = Changes.NEVER;
  private long ticket;

  OperationCall(
      Operation operation,
      Communicator communicator,
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
    this.progress = stream.progress();
    this.entrance = communicator.entrance();
  }

  /** {@return what to do} */
  public Operation operation() {
    return operation;
  }

  @Override
  public Communicator communicator() {
    return communicator;
  }

  /** {@return the data to send, or null where the operation or the rank sends none} */
  public Buffer send() {
    return send;
  }

  /** {@return where to receive, or null where the operation or the rank receives nothing} */
  public Buffer recv() {
    return recv;
  }

  /** {@return the count that the C function takes, in elements} */
  public long count() {
    return count;
  }

  /** {@return the operator of a reduction, or null} */
  public ReduceOp op() {
    return op;
  }

  /** {@return the root or the peer, or {@link Communicator#NO_PEER}} */
  public int peer() {
    return peer;
  }

  @Override
  public Stream stream() {
    return stream;
  }

  @Override
  public String method() {
    return operation.method();
  }

  /** {@return {@code send}, or null where only the root's is read} */
  @Override
  public Buffer reads() {
    return operation == Operation.BROADCAST && !ofRoot() ? null : send;
  }

  /**
   * {@return {@code recv}, or null where it is not written: other ranks' of a reduce, and a root's
   * that has the data already}
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
    return op instanceof ReduceOp.PreMulSum created ? created.scalar() : null;
  }

  private boolean ofRoot() {
    return peer == communicator.rank();
  }

  /** Returns whether it is this operation of the communicator's rank with itself as the peer. */
  boolean isWithItself(Operation what, Communicator caller) {
    return operation == what && communicator == caller && ofRoot();
  }

  /** Returns whether both buffers share memory, which the checks allow in place alone. */
  private boolean inPlace() {
    return send.overlaps(send.byteSize(), recv, recv.byteSize());
  }

  /** Returns whether it is the all-reduce of its send buffer with these arguments. */
  boolean isAllReduce(Communicator caller, Buffer to, ReduceOp operator, Stream on) {
    return communicator == caller && recv == to && op == operator && stream == on;
  }

  /** Returns whether it is the call with these arguments. */
  boolean is(
      Operation what,
      Communicator caller,
      Buffer from,
      Buffer to,
      long elements,
      ReduceOp operator,
      int other,
      Stream on) {
    return operation == what
        && send == from
        && count == elements
        && peer == other
        && isAllReduce(caller, to, operator, on);
  }

  /**
   * Says that all checks have been made at some of the changes, and that the call was launched; an
   * all-reduce is then remembered, unless calls are recorded, which only checked ones are.
   */
  void launchedAt(long changes) {
    if (checkedAt != changes && !Tracing.on()) {
      checkedAt = changes;
      if (operation == Operation.ALL_REDUCE
          && entrance != null
          && op.standard()
          && send.allReduce() != this
          && send.remembersAnother()) {
        send.remember(this);
      }
    }
  }

  /** Returns whether the all-reduce of its send buffer can be made no more. */
  boolean over() {
    return !communicator.open() || communicator.aborted() || !stream.open() || !recv.open();
  }

  /** Returns whether all checks still hold, whatever groups are open. */
  boolean holds() {
    return checkedAt == Changes.withoutGroups(Changes.count());
  }

  /**
   * Lets this thread into the communicator to launch the call, unless another one is inside,
   * anything has changed since the checks, or a group is open that the call could belong to.
   */
  boolean enter() {
    if (!entrance.occupy()) {
      return false;
    }
    if (checkedAt != Changes.count()) {
      entrance.leave();
      return false;
    }
    return true;
  }

  /**
   * Launches the all-reduce, which is counted already, by the thread that has entered; unless it
   * was refused, it counts and its stream now carries it. The arguments are the call's own, which
   * the caller has at hand.
   */
  void launch(Buffer from, Buffer to, ReduceOp operator, Stream on) {
    try {
      int result = entrance.allReduce(from, to, operator, on);
      if (result != 0) {
        entrance.settle(result);
      }
    } catch (Throwable failure) {
      boolean refused = Group.refuses(failure);
      communicator.describe(failure, operation, refused ? 0 : communicator.collectives());
      if (refused) {
        giveNumberBack();
      } else {
        carried();
      }
      throw failure;
    } finally {
      entrance.leave();
    }
    carried();
  }

  /** Counts the call on its communicator, and returns its number there. */
  long takeNumber() {
    return communicator.count(operation, peer);
  }

  /** Takes back what {@link #takeNumber} has counted, since the call was refused. */
  void giveNumberBack() {
    communicator.uncount(operation, peer);
  }

  /** Remembers what the call uses, now that its stream carries it. */
  void carried() {
    long now = progress.ticket();
    if (ticket != now) {
      stream.carries(send, recv, op);
      ticket = now;
    }
  }

  @Override
  public OperationCall on(Stream other) {
    return other == stream
        ? this
        : new OperationCall(operation, communicator, send, recv, count, op, peer, other);
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
  public List<Buffer> operands() {
    return java.util.stream.Stream.of(send, recv, scalar()).filter(Objects::nonNull).toList();
  }
}
