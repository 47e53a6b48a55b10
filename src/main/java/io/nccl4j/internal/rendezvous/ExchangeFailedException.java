package io.nccl4j.internal.rendezvous;

import java.time.Duration;

/** An exchange of an id failed for another reason than time. The message is for the user. */
public final class ExchangeFailedException extends Exception {
  /** How long rank 0 goes on answering ranks with the reason why a round failed. */
  public static final Duration LONGEST_FAREWELL = Duration.ofSeconds(5);

  private static final long serialVersionUID = 1;

  /** Describes a failure: the message names the file, address or rank. */
  public ExchangeFailedException(String message) {
    super(message);
  }

  /** Describes a failure and its cause. */
  public ExchangeFailedException(String message, Throwable cause) {
    super(message, cause);
  }
}
