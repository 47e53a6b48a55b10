package io.nccl4j;

import java.time.Duration;
import java.util.Optional;

/** A communicator, as far as the streams that carry its operations know it. */
interface StreamUser {
  /** Returns whether it is connected and neither closed nor aborted. */
  boolean isOpen();

  /** Returns whether its operations were ended without being finished. */
  boolean isAborted();

  /** Returns the longest time that it waits for a peer. */
  Duration timeout();

  /** Returns whether a library may still enqueue what a launch that was given up has left. */
  boolean launching();

  /** Returns what has failed, and reports the first failure to a running recording. */
  Optional<NcclException> failure();

  /** Returns what a wait concerns that has timed out: the communicator and its last collective. */
  FailureDetails lastEnqueued();

  /** Notes that a stream was given up with its operations still on it. */
  void markStranded();
}
