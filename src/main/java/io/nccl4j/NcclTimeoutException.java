package io.nccl4j;

import java.time.Duration;

/**
 * A deadline passed: {@link NcclResult#TIMEOUT}. The operation may still be running; abort its
 * communicator to release it.
 */
public class NcclTimeoutException extends NcclException {
  private static final long serialVersionUID = 1;

  /**
   * Describes one call that did not end in time.
   *
   * @param function the function that did not end
   * @param timeout how long was waited
   * @param waitedFor what was waited for: which ranks, which state
   */
  public NcclTimeoutException(String function, Duration timeout, String waitedFor) {
    this(
        function,
        NcclResult.TIMEOUT.code(),
        "not finished after " + text(timeout) + ": " + waitedFor,
        "");
  }

  /**
   * Describes one call that the library itself ended for its deadline.
   *
   * @param function the function that failed
   * @param code the raw {@code ncclResult_t} code
   * @param text the library's error text
   * @param lastError the library's last-error text, or an empty string
   */
  public NcclTimeoutException(String function, int code, String text, String lastError) {
    super(function, code, text, lastError);
  }

  private static String text(Duration timeout) {
    return timeout.toMillis() / 1000.0 + " s";
  }
}
