package io.nccl4j.internal.rendezvous;

/** Thrown when an exchange fails for a reason other than a timeout. The message is for the user. */
public final class ExchangeFailedException extends Exception {
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
