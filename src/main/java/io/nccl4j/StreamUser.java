package io.nccl4j;

import io.nccl4j.spi.Awaited;
import io.nccl4j.spi.FailureDetails;
import java.time.Duration;
import java.util.Optional;

/** A communicator, as seen by the streams that have its operations. */
interface StreamUser {
  /** Returns whether it is connected and neither closed nor aborted. */
  boolean isOpen();

  /** Returns whether its operations were ended before they completed. */
  boolean isAborted();

  /** Returns whether every wait throws until it is closed or aborted: its operations were late. */
  boolean keepsFailing();

  /** Returns the exception for a wait that ended with its operations. */
  NcclException ended(String function);

  /** Returns the maximum time that it waits for a peer. */
  Duration timeout();

  /**
   * Returns whether a library may still enqueue work of a launch that nccl4j stopped waiting for.
   */
  boolean launching();

  /** Returns the failure, or empty; the first failure is also added to a running recording. */
  Optional<NcclException> failure();

  /** Returns a failure, with the ranks that are lost as far as other processes tell. */
  NcclException named(NcclException failure);

  /** Returns details for a wait that timed out: the communicator and its last collective. */
  FailureDetails lastEnqueued();

  /** Returns what its current operation waits for; empty if that is not known. */
  Optional<Awaited> awaited();

  /**
   * Writes the records of operations after the first wait that timed out, if a folder is set for
   * that.
   */
  void dumpAfterTimeout();

  /** Records that a stream was abandoned with pending operations of this communicator. */
  void markStranded();
}
