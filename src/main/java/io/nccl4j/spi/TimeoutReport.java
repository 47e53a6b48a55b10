package io.nccl4j.spi;

import io.nccl4j.NcclException;
import java.time.Duration;

/**
 * Creates the exception of a wait that timed out, which names the communicators that the wait
 * concerns.
 */
@FunctionalInterface
public interface TimeoutReport {
  /**
   * Returns the exception.
   *
   * @param function the function that waits
   * @param timeout the timeout that expired
   * @param waitedFor the ranks or the state that the function waited for
   */
  NcclException timedOut(String function, Duration timeout, String waitedFor);
}
