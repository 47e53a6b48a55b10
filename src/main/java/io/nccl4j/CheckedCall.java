package io.nccl4j;

import io.nccl4j.spi.EnqueuedCall;
import java.util.List;

/**
 * One checked call that a stream orders: what {@link Group} keeps until the group ends, a {@link
 * Graph} for as long as it lives, and a backend then launches.
 */
sealed interface CheckedCall extends EnqueuedCall
    permits CheckedOperation, CheckedBackendOperation {
  /** {@return whose call it is} */
  CommunicatorCore communicator();

  /** {@return the stream that orders it} */
  Stream stream();

  /** {@return the name of the method that made the call, for messages} */
  String method();

  /** {@return the memory that this rank's part of the call reads, or null} */
  Buffer reads();

  /** {@return the memory that this rank's part of the call writes, or null} */
  Buffer writes();

  /** {@return the memory that the call reads its operator's scalar from, or null} */
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
   * Looks again at what the call uses, beside its communicator and its stream.
   *
   * @throws IllegalStateException if any of it has been closed since the call was made
   */
  void checkOperandsOpen();

  /** Has the stream remember what the call uses, which has been enqueued. */
  default void trackOperands() {
    trackOperands(stream());
  }

  /** Has another stream of the same device remember what the call uses. */
  void trackOperands(Stream on);

  /** Returns whether all calls, of which there is at least one, are of one backend. */
  static boolean ofOneBackend(List<CheckedCall> calls) {
    // By index: an iterator would be an object.
    for (int i = 0; i < calls.size(); i++) {
      if (calls.get(i).communicator().backend() != calls.getFirst().communicator().backend()) {
        return false;
      }
    }
    return !calls.isEmpty();
  }

  /** Returns whether a failure says that nothing was launched. */
  static boolean refuses(Throwable failure) {
    return failure instanceof NcclInvalidUsageException
        || failure instanceof IllegalArgumentException
        || failure instanceof IllegalStateException;
  }
}
