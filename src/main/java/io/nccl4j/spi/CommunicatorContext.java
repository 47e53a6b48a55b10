package io.nccl4j.spi;

import io.nccl4j.Buffer;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.CudaException;
import io.nccl4j.FailureDetails;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.UniqueId;

/**
 * What the driver of a communicator may ask of the contract, and what it reports. Its {@code
 * toString} is the communicator's, for messages.
 */
public interface CommunicatorContext {
  /** Returns the configuration that the communicator is made with. */
  CommunicatorConfig config();

  /** Returns the index of the device that this rank uses. */
  int device();

  /** Returns this rank; where only connecting finds it, -1 until {@link #setRank} reports it. */
  int rank();

  /**
   * Returns the number of ranks; where only connecting finds it, -1 until {@link #setRank} does.
   */
  int size();

  /** Reports rank and size, which connecting has found. */
  void setRank(int rank, int size);

  /** Returns whether the communicator is connected and neither closed nor aborted. */
  boolean isOpen();

  /** Returns whether its operations were ended without being finished. */
  boolean isAborted();

  /** Returns whether it carries no operations any more, but is not closed. */
  boolean isRevoked();

  /** Aborts the communicator, as a program does. */
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
   * @param argument what the buffer is called in messages
   * @throws IllegalStateException if the communicator or the buffer's owner is not open
   * @throws IllegalArgumentException if this rank's device cannot use the buffer
   */
  void checkUsable(Buffer buffer, String argument);

  /** Reports that the communicator has ended without finishing its operations. */
  void markAborted();

  /**
   * Reports that the operations were ended without being finished, and that the communicator
   * carries none any more, though it can be divided and closed.
   */
  void markRevoked();

  /** Reports that the communicator carries no operations for a while, or does again. */
  void markSuspended(boolean suspended);

  /**
   * Waits until every stream has passed this communicator's operations.
   *
   * @param function the function that waits, for messages
   * @throws NcclTimeoutException if one has not within the timeout, or had not when it was closed
   * @throws CudaException if work on one of them has failed
   */
  void awaitStreams(String function);

  /**
   * Ends every graph of this communicator's operations; none is launched any more.
   *
   * @throws CudaException if the CUDA runtime reports an error to destroy one, after the others;
   *     what more fails is suppressed in it
   */
  void endGraphs();

  /**
   * Uses up the one id that {@link CommunicatorDriver#newGrowId} has made, just before a grow
   * begins.
   *
   * @param id what the caller of the grow gave, or null where another rank made the id
   * @throws IllegalArgumentException if another grow has used it meanwhile
   */
  void useGrowId(UniqueId id);

  /**
   * Returns what a wait concerns that has timed out and could be for anything that is enqueued:
   * this communicator and its last collective.
   */
  FailureDetails lastEnqueued();
}
