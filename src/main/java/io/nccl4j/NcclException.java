package io.nccl4j;

import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;

/**
 * A call of the collectives' library failed: NCCL's own, or the reference backend's, with the same
 * results.
 *
 * <p>Subclasses are the kinds that a caller would handle differently. An argument that nccl4j
 * itself refuses is no {@code NcclException} but an {@link IllegalArgumentException}, {@link
 * IllegalStateException} or {@link NullPointerException}, thrown before any native call.
 *
 * <p>What a program needs to go on without the ranks that it has lost is data: {@link #failedRanks}
 * and {@link #missingRanks}, by the numbers that they have in the communicator. The reference
 * backend knows them. NCCL does not say which rank has failed or is missing, so there both are
 * empty.
 *
 * {@snippet :
 * try {
 *   comm.allReduce(gradients, gradients, ReduceOp.SUM, stream);
 *   stream.synchronize();
 * } catch (NcclException e) {
 *   Set<Integer> lost = new TreeSet<>(e.failedRanks());
 *   lost.addAll(e.missingRanks());
 *   if (lost.isEmpty() || lost.contains(comm.rank())) {
 *     throw e; // not known who is lost, or this rank itself
 *   }
 *   comm = comm.shrink(lost, ShrinkMode.ABORT_FIRST, comm.config());
 * }
 * }
 *
 * <p>Survivors may learn of several losses in another order, and {@link Communicator#shrink} needs
 * the same ranks of all of them: a shrink that fails is repeated with what {@link
 * Communicator#asyncError} of the same communicator says then.
 */
public class NcclException extends Nccl4jException {
  private static final long serialVersionUID = 1;

  /** The function that failed, such as {@code ncclAllReduce}. */
  private final String function;

  /** What it answered. */
  private final NcclResult result;

  /** The raw code of {@code ncclResult_t}. */
  private final int code;

  /** What went wrong, in the library's words. */
  private final String text;

  /** The library's last-error text, or an empty string. */
  private final String lastError;

  /** What it concerns. */
  private FailureDetails details;

  /**
   * Creates an exception for one failed call.
   *
   * @param function the function that failed, such as {@code ncclAllReduce}
   * @param code the raw {@code ncclResult_t} code
   * @param text the library's error text
   * @param lastError the library's last-error text, or an empty string. NCCL keeps one such text
   *     per process: it may stem from an earlier call, also of another thread
   */
  public NcclException(String function, int code, String text, String lastError) {
    this(function, code, text, lastError, FailureDetails.NONE);
  }

  /** Describes one failed call of which it is known what it concerns. */
  NcclException(String function, int code, String text, String lastError, FailureDetails details) {
    super(message(function, code, text, lastError));
    this.function = function;
    this.result = NcclResult.ofCode(code);
    this.code = code;
    this.text = text;
    this.lastError = lastError;
    this.details = details;
  }

  /**
   * Makes the exception of the kind that a result belongs to.
   *
   * @param function the function that failed
   * @param code the raw {@code ncclResult_t} code
   * @param text the library's error text
   * @param lastError the library's last-error text, or an empty string
   * @return the exception, to be thrown
   */
  public static NcclException of(String function, int code, String text, String lastError) {
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
   * {@return a new exception of the same kind and with the same texts, whose cause is the first}
   * Called by backends; programs do not need it. Each of several waits that end for one reason
   * throws its own, since it may suppress others in it.
   *
   * @param first the first exception
   * @param details what the new one concerns
   */
  public static NcclException copyOf(NcclException first, FailureDetails details) {
    NcclException copy =
        first instanceof CommunicatorAbortedException abort
            ? new CommunicatorAbortedException(abort.function(), abort.communicator())
            : of(first.function, first.code, first.text, first.lastError);
    copy.details = details;
    copy.initCause(first);
    return copy;
  }

  /**
   * Called by backends; programs do not need it. Says what this exception concerns, unless that has
   * been said before. The thread that makes the exception calls this before it hands the exception
   * to another one.
   *
   * @param known what is known
   * @return this exception
   */
  public final NcclException initDetails(FailureDetails known) {
    if (details.equals(FailureDetails.NONE)) {
      details = known;
    }
    return this;
  }

  /** {@return what this exception concerns, as far as is known} Backends pass it on. */
  public final FailureDetails details() {
    return details;
  }

  private static String message(String function, int code, String text, String lastError) {
    String call = function + ": " + text + " (" + NcclResult.ofCode(code) + ", code " + code + ")";
    return lastError.isBlank() ? call : call + "; last error: " + lastError.strip();
  }

  /** {@return the texts, and which collective of which communicator it was, where that is known} */
  @Override
  public String getMessage() {
    String message = super.getMessage();
    String where = details.where();
    return message.contains(where) ? message : message + "; " + where;
  }

  /**
   * {@return the ranks that are known to have failed, died, aborted or closed their end, in
   * ascending order: they take part in nothing any more} They are numbers of the communicator whose
   * operation failed; of the parent where making another one of it failed. Empty where none is
   * known: ranks that only call different operations have not failed, and NCCL names none.
   * Immutable; it stays as it was known when the exception was made.
   */
  public final Set<Integer> failedRanks() {
    return details.failedRanks();
  }

  /**
   * {@return the ranks that were waited for until the time had passed, in ascending order: they may
   * be late, stopped or gone} Numbers as for {@link #failedRanks}; a rank that was itself waited
   * for finds its own number. Empty if it was no time-out, on NCCL, and of a rendezvous. Immutable.
   */
  public final Set<Integer> missingRanks() {
    return details.missingRanks();
  }

  /** {@return the operation that failed, or was waited for, if it was one and is known} */
  public final Optional<Operation> operation() {
    return Optional.ofNullable(details.operation());
  }

  /**
   * {@return the number of the collective that failed among those of its communicator, from 1,
   * which is the same on every rank} Recordings have the same numbers. Of a group whose launch NCCL
   * failed, the first one. Of a wait for a stream or an event, whose own time has passed, the last
   * one that was enqueued by then: the one that hangs is this one or one before it. Empty where it
   * was no collective, where NCCL refused the call, which then has no number, or where several
   * communicators are on the stream.
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

  /** {@return what it answered; {@link NcclResult#UNKNOWN} for a code that nccl4j does not know} */
  public final NcclResult result() {
    return result;
  }

  /** {@return the raw code that it answered} */
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
