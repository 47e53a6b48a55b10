package io.nccl4j;

import io.nccl4j.spi.FailureDetails;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import org.jspecify.annotations.NullMarked;

/**
 * Thrown when a call of NCCL or of the reference backend fails; both use the same result codes.
 *
 * <p>The subclasses are failures that callers may handle differently. An argument that nccl4j
 * rejects throws an {@link IllegalArgumentException}, {@link IllegalStateException} or {@link
 * NullPointerException} instead, before any native call.
 *
 * <p>To continue without the ranks that are lost, every survivor passes the failure to {@link
 * Recovery}:
 *
 * {@snippet :
 * while (true) {
 *   try {
 *     train(comm);
 *     break;
 *   } catch (NcclException failure) {
 *     Communicator broken = comm;
 *     comm = Recovery.defaults().recover(broken, failure); // throws if it cannot continue
 *     broken.abort();
 *   }
 * }
 * }
 *
 * <p>{@link #failedRanks} and {@link #missingRanks} say which ranks the failure concerns. Survivors
 * may know different ones, so a program that passes them to {@link Communicator#shrink} itself must
 * first make them the same on every survivor.
 */
@NullMarked
public class NcclException extends Nccl4jException {
  private static final long serialVersionUID = 1;

  /** The function that failed, such as {@code ncclAllReduce}. */
  private final String function;

  /** The result of the call. */
  private final NcclResult result;

  /** The raw code of {@code ncclResult_t}. */
  private final int code;

  /** The library's error text. */
  private final String text;

  /** The library's last-error text, or an empty string. */
  private final String lastError;

  /** The communicator, operation and ranks concerned. */
  private FailureDetails details;

  /**
   * Creates an exception for one failed call.
   *
   * @param function the function that failed, such as {@code ncclAllReduce}
   * @param code the raw {@code ncclResult_t} code
   * @param text the library's error text
   * @param lastError the library's last-error text, or an empty string. NCCL keeps one such text
   *     per process, so it may stem from an earlier call, possibly of another thread
   */
  public NcclException(String function, int code, String text, String lastError) {
    this(function, code, text, lastError, FailureDetails.NONE);
  }

  /** Creates an exception for one failed call, with details. */
  NcclException(String function, int code, String text, String lastError, FailureDetails details) {
    super(message(function, code, text, lastError));
    this.function = function;
    this.result = NcclResult.ofCode(code);
    this.code = code;
    this.text = text;
    this.lastError = lastError;
    this.details = details;
  }

  /** Returns a new exception of the class that corresponds to a result code. */
  static NcclException of(String function, int code, String text, String lastError) {
    return switch (NcclResult.ofCode(code)) {
      case INVALID_ARGUMENT, INVALID_USAGE ->
          new NcclInvalidUsageException(function, code, text, lastError);
      case REMOTE_ERROR -> new NcclRemoteException(function, code, text, lastError);
      case UNHANDLED_CUDA_ERROR, SYSTEM_ERROR ->
          new NcclSystemException(function, code, text, lastError);
      case TIMEOUT -> new NcclTimeoutException(function, code, text, lastError);
      default -> new NcclException(function, code, text, lastError);
    };
  }

  /**
   * {@return a new exception of the same class and with the same texts, whose cause is the first}
   * If several waits end for one reason, each throws its own exception, since others may be
   * suppressed in it.
   *
   * @param first the first exception
   * @param details the details of the new exception
   */
  static NcclException copyOf(NcclException first, FailureDetails details) {
    NcclException copy =
        first instanceof CommunicatorAbortedException abort
            ? new CommunicatorAbortedException(abort.function(), abort.communicator())
            : of(first.function, first.code, first.text, first.lastError);
    copy.details = details;
    copy.initCause(first);
    return copy;
  }

  /**
   * Sets the details of this exception, unless they are already set; adds an operation to details
   * that have none. The thread that creates the exception calls this method before it passes the
   * exception to another thread.
   *
   * @param known the details
   * @return this exception
   */
  final NcclException initDetails(FailureDetails known) {
    if (details.equals(FailureDetails.NONE)) {
      details = known;
    } else if (details.operation() == null
        && details.sequenceNumber() == 0
        && details.communicator().equals(known.communicator())) {
      details = details.in(known.operation(), known.sequenceNumber());
    }
    return this;
  }

  /** {@return the known details of this exception} */
  final FailureDetails details() {
    return details;
  }

  private static String message(String function, int code, String text, String lastError) {
    String call = function + ": " + text + " (" + NcclResult.ofCode(code) + ", code " + code + ")";
    return lastError.isBlank() ? call : call + "; last error: " + lastError.strip();
  }

  /**
   * {@return the error texts, followed by the collective and the communicator if they are known}
   */
  @Override
  public String getMessage() {
    String message = super.getMessage();
    String where = details.where();
    return message.contains(where) ? message : message + "; " + where;
  }

  /**
   * {@return the ranks because of which the operation failed, and those whose processes are lost,
   * in ascending order} A rank that ends its communicator only after the failure is not among them.
   * The numbers are ranks of the communicator that the message names: the one whose operation
   * failed, or the parent if the creation of a child failed. Empty if none is known: ranks that
   * call different operations have not failed, and NCCL 2.29.2 and later name only ranks that do
   * not answer or have left, after an operation or a wait for a stream that timed out or failed
   * with {@link NcclRemoteException}; older releases none. Immutable; not updated after the
   * exception was created.
   */
  public final Set<Integer> failedRanks() {
    return details.failedRanks();
  }

  /**
   * {@return the ranks that had not responded when the timeout expired, in ascending order; they
   * may be late, stopped or terminated} The numbers are as for {@link #failedRanks} and may include
   * this rank. On NCCL 2.29.2 and later, the ranks that have not called the oldest collective that
   * this rank's device has not completed, if NCCL's RAS service reports them. Empty with older
   * releases of NCCL, for a rendezvous, and, except on NCCL, if the failure is not a timeout.
   * Immutable.
   */
  public final Set<Integer> missingRanks() {
    return details.missingRanks();
  }

  /** {@return the operation that failed or timed out, if known} */
  public final Optional<Operation> operation() {
    return Optional.ofNullable(details.operation());
  }

  /**
   * {@return the sequence number of the failed collective in its communicator, from 1, which is the
   * same on every rank} Recordings use the same numbers. If NCCL failed to launch a group, it is
   * the number of the group's first collective. If a wait for a stream or an event timed out, it is
   * the number of the last collective enqueued by then: that one or an earlier one hangs. Empty if
   * the operation is not a collective, if NCCL rejected the call, which then has no number, or if
   * several communicators use the stream.
   */
  public final OptionalLong sequenceNumber() {
    return details.sequenceNumber() == 0
        ? OptionalLong.empty()
        : OptionalLong.of(details.sequenceNumber());
  }

  /** {@return the function that failed, such as {@code ncclAllReduce}} */
  public final String function() {
    return function;
  }

  /**
   * {@return the result of the call; {@link NcclResult#UNKNOWN} for a code that nccl4j does not
   * know}
   */
  public final NcclResult result() {
    return result;
  }

  /** {@return the raw {@code ncclResult_t} code} */
  public final int code() {
    return code;
  }

  /** {@return the library's error text} C: {@code ncclGetErrorString}. */
  public final String text() {
    return text;
  }

  /**
   * {@return the library's last-error text, or an empty string} It is per process and may stem from
   * an earlier call. C: {@code ncclGetLastError}.
   */
  public final String lastError() {
    return lastError;
  }
}
