package io.nccl4j.rendezvous;

import io.nccl4j.Nccl4jException;

/**
 * Ranks could not exchange an id for another reason than time: a file or a connection failed, what
 * was found there is not what this run wrote, a peer refused, or the waiting thread was
 * interrupted. The message names file, address or rank.
 *
 * <p>A deadline that passes is a {@link io.nccl4j.NcclTimeoutException}; a wrong argument or
 * environment variable an {@link IllegalArgumentException}.
 */
public class RendezvousException extends Nccl4jException {
  private static final long serialVersionUID = 1;

  /**
   * Describes one failed exchange.
   *
   * @param message what failed: it names the file, address or rank
   */
  public RendezvousException(String message) {
    super(message);
  }

  /**
   * Describes one failed exchange and its cause.
   *
   * @param message what failed and why: it names the file, address or rank
   * @param cause what the exchange failed of
   */
  public RendezvousException(String message, Throwable cause) {
    super(message, cause);
  }
}
