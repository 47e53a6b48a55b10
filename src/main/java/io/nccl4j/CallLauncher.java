package io.nccl4j;

import java.util.List;

/** Launches checked calls of communicators, or adds them to a group or a capture. */
final class CallLauncher {
  private CallLauncher() {}

  /** Launches a checked operation, or adds it to this thread's group or the stream's capture. */
  static void submit(
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
    boolean collective = !operation.pointToPoint();
    if (count == 0 && collective) {
      return;
    }
    Group group = Group.current();
    if (group != null) {
      group.add(new CheckedOperation(operation, communicator, send, recv, count, op, peer, stream));
      return;
    }
    communicator.use(stream);
    if (stream.captured()) {
      stream.checkCapturedHere();
      capture(new CheckedOperation(operation, communicator, send, recv, count, op, peer, stream));
      return;
    }
    OperationNumbers numbers = communicator.numbers();
    if (collective) {
      numbers.beginCall(operation);
    }
    launchAndCount(operation, communicator, send, recv, count, op, peer, stream);
    if (collective) {
      numbers.endCall();
    }
  }

  /** Launches an operation; unless it was rejected, counts it and records its use of the stream. */
  private static void launchAndCount(
      Operation operation,
      CommunicatorCore communicator,
      Buffer send,
      Buffer recv,
      long count,
      ReduceOp op,
      int peer,
      Stream stream) {
    OperationNumbers numbers = communicator.numbers();
    boolean rejected = false;
    boolean traced = FlightRecorderEvents.on();
    long next = numbers.collectives() + 1;
    try {
      if (traced) {
        LaunchTrace.record(
            new CheckedOperation(operation, communicator, send, recv, count, op, peer, stream),
            () -> launch(operation, communicator, send, recv, count, op, peer, stream));
      } else {
        launch(operation, communicator, send, recv, count, op, peer, stream);
      }
    } catch (Throwable failure) {
      rejected = CheckedCall.nothingLaunched(failure);
      communicator.describe(failure, operation, rejected || operation.pointToPoint() ? 0 : next);
      throw failure;
    } finally {
      if (!rejected) {
        stream.trackOperands(send, recv, op == null ? null : op.scalar());
        if (!traced) {
          numbers.count(operation, peer);
        }
      }
    }
  }

  private static void launch(
      Operation operation,
      CommunicatorCore communicator,
      Buffer send,
      Buffer recv,
      long count,
      ReduceOp op,
      int peer,
      Stream stream) {
    communicator
        .driver()
        .launch(
            operation,
            CheckedOperation.memory(send),
            CheckedOperation.memory(recv),
            count,
            CheckedOperation.operator(op),
            peer,
            stream.driver());
  }

  private static void capture(CheckedOperation call) {
    Stream stream = call.stream();
    if (stream.capturesNatively()) {
      launch(
          call.operation(),
          call.communicator(),
          call.send(),
          call.recv(),
          call.count(),
          call.op(),
          call.peer(),
          stream);
    }
    Capture.keep(stream, List.of(call));
  }

  /** Submits an operation that only one backend has, like the other {@code submit}. */
  static void submit(CheckedBackendOperation call) {
    CommunicatorCore communicator = call.communicator();
    communicator.checkConnected();
    Stream stream = call.stream();
    communicator.checkStream(stream);
    Group group = Group.current();
    if (group != null) {
      group.add(call);
      return;
    }
    communicator.use(stream);
    boolean captured = stream.captured();
    if (captured) {
      stream.checkCapturedHere();
    }
    if (!captured || stream.capturesNatively()) {
      call.backendOperation().launch(stream.driver());
    }
    if (captured) {
      Capture.keep(stream, List.of(call));
    } else {
      call.trackOperands();
    }
  }
}
