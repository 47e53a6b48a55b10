package io.nccl4j;

import org.jspecify.annotations.NullMarked;

/**
 * What happens on NCCL to operations that the device does not complete within the timeout of their
 * communicator. NCCL itself has no timeout: a rank waits for a peer indefinitely.
 *
 * <p>It does not apply to a call that is itself inside NCCL for that long, such as to connect to
 * its peers: the call throws an {@link NcclTimeoutException}. A blocking communicator is aborted
 * for that; before NCCL 2.28.7, only a warning is logged.
 */
@NullMarked
public enum TimeoutAction {
  /**
   * The operations end: waits for their streams throw an {@link NcclTimeoutException}. From NCCL
   * 2.28.7 on the communicator is revoked, so that {@link Recovery} can continue without the lost
   * ranks; before, it is aborted.
   */
  ABORT,

  /** An error is logged, and the operations stay. */
  REPORT,

  /**
   * An error is logged, and the process ends at once with exit status 1, without shutdown hooks,
   * which might wait for the device: for jobs whose launcher starts lost processes anew.
   */
  EXIT
}
