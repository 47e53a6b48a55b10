package io.nccl4j.spi;

import io.nccl4j.NcclException;
import java.time.Duration;

/**
 * Makes what a wait throws when its time has passed: it names the communicators that the wait
 * concerns.
 */
@FunctionalInterface
public interface TimeoutReport {
  /**
   * Returns what to throw.
   *
   * @param function the function that waits
   * @param timeout the time that has passed
   * @param waitedFor what was waited for
   */
  NcclException timedOut(String function, Duration timeout, String waitedFor);
}
