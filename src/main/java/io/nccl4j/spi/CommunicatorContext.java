package io.nccl4j.spi;

import io.nccl4j.Buffer;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.CudaException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.UniqueId;
import java.time.Duration;
import java.util.Optional;

/**
 * The communicator of a driver: provides its configuration and state, and receives the driver's
 * reports. Its {@code toString} is that of the communicator, for messages.
 */
public interface CommunicatorContext {
  /** Returns the configuration of the communicator. */
  CommunicatorConfig config();

  /** Returns the timeout of the configuration, or else that of the backend. */
  Duration timeout();

  /** Returns the index of the device that this rank uses. */
  int device();

  /** Returns this rank; if connecting determines it, -1 until {@link #setRank} is called. */
  int rank();

  /**
   * Returns the number of ranks; if connecting determines it, -1 until {@link #setRank} is called.
   */
  int size();

  /** Reports the rank and the size that connecting has determined. */
  void setRank(int rank, int size);

  /** Returns whether the communicator is connected and neither closed nor aborted. */
  boolean isOpen();

  /** Returns whether it was aborted, or its close has ended, so that no call may begin. */
  boolean isEnded();

  /** Returns whether its operations were ended before they completed. */
  boolean isAborted();

  /** Returns whether it accepts no further operations, but is not closed. */
  boolean isRevoked();

  /** Returns whether its failure has been thrown or logged. */
  boolean failureReported();

  /** Logs a failure that was detected since it connected, unless a call has thrown it. */
  void noticeFailure();

  /** Aborts the communicator, as {@link io.nccl4j.Communicator#abort} does. */
  void abort();

  /**
   * Throws unless the communicator can be used now.
   *
   * @throws IllegalStateException if it is not connected, suspended, revoked, aborted or closed
   */
  void checkConnected();

  /**
   * Throws unless the communicator can use a buffer now.
   *
   * @param argument the name of the buffer in messages
   * @throws IllegalStateException if the communicator or the buffer's owner is not open
   * @throws IllegalArgumentException if this rank's device cannot use the buffer
   */
  void checkUsable(Buffer buffer, String argument);

  /**
   * Reports that the communicator's operations were ended before they completed. If it was being
   * closed, it has ended.
   */
  void markAborted();

  /**
   * Reports that the operations were ended before they completed, and that the communicator accepts
   * no further operations, but can be split, shrunk and closed.
   */
  void markRevoked();

  /** Reports that the communicator has been suspended or resumed. */
  void markSuspended(boolean suspended);

  /**
   * Waits until every stream has completed this communicator's operations.
   *
   * @param function the function that waits, for messages
   * @throws NcclTimeoutException if a stream does not complete them within the timeout, or was
   *     closed before it completed them
   * @throws CudaException if work on one of the streams has failed
   */
  void awaitStreams(String function);

  /**
   * Ends every graph that contains operations of this communicator; none can be launched any more.
   *
   * @throws CudaException if a graph cannot be destroyed; the others are ended nevertheless, and
   *     further failures are suppressed in it
   */
  void endGraphs();

  /**
   * Marks the id that {@link CommunicatorDriver#newGrowId} created as used, just before a grow
   * begins.
   *
   * @param id the id that the caller of the grow passed, or null if another rank created it
   * @throws IllegalArgumentException if another grow has used it in the meantime
   */
  void useGrowId(UniqueId id);

  /**
   * Returns the details for a timed-out wait that may concern any enqueued operation: this
   * communicator and its last collective.
   */
  FailureDetails lastEnqueued();

  /**
   * Returns what its oldest operation waits for; empty if that is not known. Asks other processes,
   * for at most a few seconds.
   */
  Optional<Awaited> awaited();
}
