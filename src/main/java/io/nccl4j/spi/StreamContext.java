package io.nccl4j.spi;

import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.NcclException;
import java.time.Duration;

/** The communicators whose operations are on a stream, for the stream's driver. */
public interface StreamContext extends TimeoutReport {
  /** Returns the number of the stream in its process, which identifies it in recordings. */
  long number();

  /** Returns the longest timeout of the communicators. */
  Duration longestTimeout();

  /**
   * Throws the failure of a communicator, if there is one; drivers call it during and after a wait.
   * An abort is thrown until one {@link StreamDriver#await} or {@link StreamDriver#download} has
   * thrown it; then the communicator is no longer a user of the stream.
   *
   * @param function the function that waits, for messages
   * @throws CommunicatorAbortedException if one was aborted
   * @throws NcclException if one has failed
   */
  void throwFailure(String function);

  /** Reports that the stream was abandoned with pending work of these communicators. */
  void markStranded();
}
