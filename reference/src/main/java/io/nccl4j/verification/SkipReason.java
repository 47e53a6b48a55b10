package io.nccl4j.verification;

import org.jspecify.annotations.NullMarked;

/** Why a collective that was chosen by its number was not checked. */
@NullMarked
public enum SkipReason {
  /** Its input and output together have more than 16 MiB. */
  TOO_LARGE,
  /** A graph launched it, or its stream was being captured. */
  CAPTURED,
  /** It was launched in a group with other operations of its communicator. */
  GROUPED,
  /** Its operator was created by its communicator, which keeps the scalar to itself. */
  OPERATOR,
  /** Another check was in flight on a rank. */
  BUSY,
  /** The launch, the device or the check failed, or the communicator was aborted. */
  FAILED,
  /** A rank did not take part in a check in time, or verification had ended before. */
  LATE
}
