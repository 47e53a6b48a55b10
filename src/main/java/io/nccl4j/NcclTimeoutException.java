package io.nccl4j;

import java.time.Duration;
import org.jspecify.annotations.NullMarked;

/**
 * Thrown when a timeout expires: {@link NcclResult#TIMEOUT}. The operation may still be running;
 * abort its communicator to end it.
 */
@NullMarked
public class NcclTimeoutException extends NcclException {
  private static final long serialVersionUID = 1;

  /**
   * Creates an exception for a call that did not finish in time.
   *
   * @param function the function that did not finish
   * @param timeout the timeout that expired
   * @param waitedFor the ranks or the state that the call waited for
   */
  public NcclTimeoutException(String function, Duration timeout, String waitedFor) {
    this(
        function,
        NcclResult.TIMEOUT.code(),
        "not finished after " + text(timeout) + ": " + waitedFor,
        "");
  }

  /** Creates an exception for a call that the library itself ended with a timeout. */
  NcclTimeoutException(String function, int code, String text, String lastError) {
    super(function, code, text, lastError);
  }

  private static String text(Duration timeout) {
    return timeout.toMillis() / 1000.0 + " s";
  }
}
