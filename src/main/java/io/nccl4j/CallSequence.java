package io.nccl4j;

import io.nccl4j.spi.CommunicatorDriver;
import java.lang.invoke.VarHandle;
import java.util.List;

/**
 * The checked calls of a communicator, one after the other: it launches them, or leaves them to a
 * group or a capture, and counts them. The number of a collective is the same on every rank.
 */
final class CallSequence {
  private static final CallSequence[] NONE = {};

  private final Communicator communicator;
  private final CommunicatorDriver driver;
  private long collectives;
  private long[] sends = {};
  private long[] receives = {};

  // Those of the other ranks of this communicator that one thread made together with this one.
  private CallSequence[] siblings = NONE;
  // The thread that called a collective last outside any group, and the numbers of the first and
  // the last of its collectives.
  private Thread caller;
  private long firstCalled;
  private long lastCalled;

  CallSequence(Communicator communicator, CommunicatorDriver driver) {
    this.communicator = communicator;
    this.driver = driver;
  }

  /**
   * Launches a checked operation, or leaves that to this thread's group or the stream's capture.
   */
  void submit(
      Operation operation,
      Buffer send,
      Buffer recv,
      long count,
      ReduceOp op,
      int peer,
      Stream stream) {
    communicator.checkStream(stream);
    DataType type = (send == null ? recv : send).type();
    if (type.float8()) {
      driver.checkFloat8(operation, type);
    }
    if (count == 0 && !operation.pointToPoint()) {
      return;
    }
    Group group = Group.current();
    if (group != null) {
      group.add(operation, communicator, send, recv, count, op, peer, stream);
      return;
    }
    stream.usedBy(communicator);
    if (stream.captured()) {
      stream.checkCapturedHere();
      capture(new OperationCall(operation, communicator, send, recv, count, op, peer, stream));
      return;
    }
    boolean collective = !operation.pointToPoint();
    if (collective && !isCaller()) {
      becomeCaller(operation);
    }
    launchAndCount(operation, send, recv, count, op, peer, stream);
    if (collective) {
      lastCalled = collectives;
    }
  }

  /** Launches an operation; unless it was refused, it counts and its stream now carries it. */
  private void launchAndCount(
      Operation operation,
      Buffer send,
      Buffer recv,
      long count,
      ReduceOp op,
      int peer,
      Stream stream) {
    boolean refused = false;
    boolean traced = Tracing.on();
    long next = collectives + 1;
    try {
      if (traced) {
        Span.enclose(
            new OperationCall(operation, communicator, send, recv, count, op, peer, stream),
            () -> launch(operation, send, recv, count, op, peer, stream));
      } else {
        launch(operation, send, recv, count, op, peer, stream);
      }
    } catch (Throwable failure) {
      refused = Group.refuses(failure);
      describe(failure, operation, refused || operation.pointToPoint() ? 0 : next);
      throw failure;
    } finally {
      if (!refused) {
        stream.carries(send, recv, op);
        if (!traced) {
          count(operation, peer);
        }
      }
    }
  }

  private void launch(
      Operation operation,
      Buffer send,
      Buffer recv,
      long count,
      ReduceOp op,
      int peer,
      Stream stream) {
    driver.launch(
        operation,
        OperationCall.memory(send),
        OperationCall.memory(recv),
        count,
        OperationCall.operator(op),
        peer,
        stream.driver());
  }

  private void capture(OperationCall call) {
    Stream stream = call.stream();
    if (stream.capturesNatively()) {
      launch(
          call.operation(), call.send(), call.recv(), call.count(), call.op(), call.peer(), stream);
    }
    stream.keep(List.of(call));
  }

  /** Does what {@link #submit} does with an operation that one backend alone has. */
  void submit(BackendCall call) {
    communicator.checkConnected();
    Stream stream = call.stream();
    communicator.checkStream(stream);
    Group group = Group.current();
    if (group != null) {
      group.add(call);
      return;
    }
    stream.usedBy(communicator);
    if (stream.captured()) {
      stream.checkCapturedHere();
    }
    if (!stream.captured() || stream.capturesNatively()) {
      call.backendOperation().launch(stream.driver());
    }
    if (stream.captured()) {
      stream.keep(List.of(call));
    } else {
      stream.carries(call);
    }
  }

  /**
   * Counts an operation; returns its number among the collectives, or among the messages to or from
   * its peer. What is refused does not count, since no other rank's operation meets it.
   */
  long count(Operation operation, int peer) {
    if (!operation.pointToPoint()) {
      return ++collectives;
    }
    if (sends.length == 0) {
      sends = new long[communicator.size()];
      receives = new long[communicator.size()];
    }
    return ++(operation == Operation.SEND ? sends : receives)[peer];
  }

  /** Takes back the count of an operation that was refused after it. */
  void uncount(Operation operation, int peer) {
    if (operation.pointToPoint()) {
      (operation == Operation.SEND ? sends : receives)[peer]--;
    } else {
      collectives--;
    }
  }

  /** Returns how many collectives have been enqueued. */
  long collectives() {
    return collectives;
  }

  /**
   * Says of a failure to launch operations which ones it concerns, unless that is known.
   *
   * @param operation the operation, or null where there are several
   * @param number the number of the first collective, or 0
   */
  void describe(Throwable failure, Operation operation, long number) {
    if (failure instanceof NcclException known) {
      known.initDetails(communicator.life().details().in(operation, number));
    }
  }

  /** Remembers the ranks that one thread made together, which must not wait for each other. */
  static void makeSiblings(List<Communicator> madeTogether) {
    for (Communicator made : madeTogether) {
      if (made.sizeIfKnown() > 1) {
        String identity = made.life().identity();
        made.calls().siblings =
            madeTogether.stream()
                .filter(other -> other != made && other.life().identity().equals(identity))
                .map(Communicator::calls)
                .toArray(CallSequence[]::new);
      }
    }
  }

  private boolean isCaller() {
    return siblings.length == 0 || caller == Thread.currentThread();
  }

  /**
   * Throws if this thread has called, outside any group, the very collective of another rank that
   * it now calls of this one. Of the ranks that were made together, one at most has a thread as its
   * caller, so a thread that keeps to one rank comes here once.
   */
  private void becomeCaller(Operation operation) {
    Thread thread = Thread.currentThread();
    long number = collectives + 1;
    for (CallSequence sibling : siblings) {
      long last = sibling.lastCalled;
      // In this order, which the other thread's fence keeps too: if a thread that took over has
      // made the call, it is seen to be the caller.
      VarHandle.loadLoadFence();
      if (sibling.caller != thread) {
        continue;
      }
      if (sibling.firstCalled <= number && number <= last) {
        throw new IllegalStateException(
            "this thread has called collective %d of %s outside a group and now calls it of %s (%s); the first call may wait for the second, so call both in one Group.run, or each in a thread of its own"
                .formatted(number, sibling.communicator, communicator, operation.method()));
      }
      sibling.caller = null;
    }
    firstCalled = number;
    caller = thread;
    VarHandle.fullFence();
  }
}
