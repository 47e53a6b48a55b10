package io.nccl4j;

/**
 * What becomes of the operations of a communicator that is shrunk; every survivor says the same.
 */
public enum ShrinkMode {
  /**
   * They are finished first: each survivor waits until its streams have passed them. The
   * communicator stays as it was. C: {@code NCCL_SHRINK_DEFAULT}.
   */
  FINISH_FIRST,

  /**
   * They are ended first, as {@link Communicator#abort} ends them: for when a rank has failed or
   * fallen silent. The communicator carries no operations any more; it can only be split, shrunk
   * again, aborted or closed. A rank whose {@link Communicator#asyncError} tells of a failure can
   * still shrink on the reference; NCCL up to 2.30.7 refuses it there. C: {@code
   * NCCL_SHRINK_ABORT}.
   */
  ABORT_FIRST
}
