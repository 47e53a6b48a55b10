package io.nccl4j.rendezvous;

import io.nccl4j.Nccl4jException;
import org.jspecify.annotations.NullMarked;
import org.jspecify.annotations.Nullable;

/**
 * Thrown when an exchange of an id fails for a reason other than a timeout: a file or connection
 * failed or has unexpected contents, a peer rejected this rank, or the waiting thread was
 * interrupted. The message names the file, address or rank.
 *
 * <p>A timeout is a {@link io.nccl4j.NcclTimeoutException}; an invalid argument or environment
 * variable is an {@link IllegalArgumentException}.
 */
@NullMarked
public class RendezvousException extends Nccl4jException {
  private static final long serialVersionUID = 1;

  /**
   * Creates an exception.
   *
   * @param message what failed, with the file, address or rank
   */
  public RendezvousException(String message) {
    super(message);
  }

  /**
   * Creates an exception with a cause.
   *
   * @param message what failed and why, with the file, address or rank
   * @param cause the cause of the failure
   */
  public RendezvousException(String message, @Nullable Throwable cause) {
    super(message, cause);
  }
}
