package io.nccl4j;

import org.jspecify.annotations.NullMarked;

/** How a shrink treats pending operations of the communicator; all survivors pass the same mode. */
@NullMarked
public enum ShrinkMode {
  /**
   * Waits for pending operations: each survivor waits until its streams have completed them. The
   * communicator remains usable. C: {@code NCCL_SHRINK_DEFAULT}.
   */
  FINISH_FIRST,

  /**
   * Aborts pending operations, as {@link Communicator#abort} does; for use when a rank has failed
   * or does not respond. The communicator accepts no further operations; it can only be split,
   * shrunk again, aborted or closed. A rank whose {@link Communicator#asyncError} reports a failure
   * can still shrink on the reference backend; NCCL up to 2.30.7 rejects a shrink on such a rank.
   * C: {@code NCCL_SHRINK_ABORT}.
   */
  ABORT_FIRST
}
