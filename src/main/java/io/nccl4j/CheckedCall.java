package io.nccl4j;

import io.nccl4j.spi.EnqueuedCall;
import java.util.List;

/**
 * A validated call that a stream orders and a backend launches. A {@link Group} keeps it until the
 * group ends, a {@link Graph} until the graph is closed.
 */
sealed interface CheckedCall extends EnqueuedCall
    permits CheckedOperation, CheckedBackendOperation {
  /** {@return the communicator of the call} */
  CommunicatorCore communicator();

  /** {@return the stream that orders it} */
  Stream stream();

  /** {@return the name of the method that made the call, for messages} */
  String method();

  /** {@return the memory that this rank's part of the call reads, or null} */
  Buffer reads();

  /** {@return the memory that this rank's part of the call writes, or null} */
  Buffer writes();

  /** {@return the memory from which the call reads its operator's scalar, or null} */
  default Buffer scalar() {
    return null;
  }

  /**
   * {@return the same call on another stream}
   *
   * @param other a stream of the same device
   */
  CheckedCall on(Stream other);

  /**
   * Checks again the objects that the call uses, except its communicator and its stream.
   *
   * @throws IllegalStateException if one has been closed since the call was made
   */
  void checkOperandsOpen();

  /** Records on the stream the operands of the call, which has been enqueued. */
  default void trackOperands() {
    trackOperands(stream());
  }

  /** Records the operands of the call on another stream of the same device. */
  void trackOperands(Stream on);

  /** Returns whether there is at least one call and all calls use one backend. */
  static boolean ofOneBackend(List<CheckedCall> calls) {
    return calls.stream().map(call -> call.communicator().backend()).distinct().count() == 1;
  }

  /** Returns whether a failure implies that nothing was launched. */
  static boolean nothingLaunched(Throwable failure) {
    return failure instanceof NcclInvalidUsageException
        || failure instanceof IllegalArgumentException
        || failure instanceof IllegalStateException;
  }
}
