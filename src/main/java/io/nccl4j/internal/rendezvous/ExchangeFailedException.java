package io.nccl4j.internal.rendezvous;

import java.time.Duration;

/** Thrown when an exchange fails for a reason other than a timeout. The message is for the user. */
public final class ExchangeFailedException extends Exception {
  /** How long rank 0 continues to send ranks the reason of a failed round. */
  public static final Duration FAILURE_LINGER = Duration.ofSeconds(5);

  private static final long serialVersionUID = 1;

  /** Creates an exception whose message names the file, address or rank. */
  public ExchangeFailedException(String message) {
    super(message);
  }

  /** Creates an exception with a cause. */
  public ExchangeFailedException(String message, Throwable cause) {
    super(message, cause);
  }
}
