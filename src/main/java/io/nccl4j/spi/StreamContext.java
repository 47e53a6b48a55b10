package io.nccl4j.spi;

import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.NcclException;
import java.time.Duration;

/** What the driver of a stream may ask of the communicators whose operations the stream carries. */
public interface StreamContext extends TimeoutReport {
  /** Returns the number of the stream in its process, by which recordings name it. */
  long number();

  /** Returns the longest time that one of the communicators waits for a peer. */
  Duration longestTimeout();

  /**
   * Throws what went wrong with a communicator; drivers call it while and after they wait. An abort
   * is thrown until one {@link StreamDriver#await} or {@link StreamDriver#download} has thrown it,
   * after which the stream goes on without that communicator.
   *
   * @param function the function that waits, for messages
   * @throws CommunicatorAbortedException if one was aborted
   * @throws NcclException if one has failed
   */
  void throwFailure(String function);

  /** Says that the stream was given up with work of these communicators still on it. */
  void markStranded();
}
