package io.nccl4j;

import java.util.Objects;
import org.jspecify.annotations.NullMarked;
import org.jspecify.annotations.Nullable;

/**
 * The base class of the exceptions that report a failure of a library, a device, a peer or the
 * machine. Catch it to handle all such failures in one place:
 *
 * <ul>
 *   <li>{@link NcclException}: a backend reported a failure, or a timeout expired
 *   <li>{@link CudaException}: a call of the CUDA runtime failed
 *   <li>{@link LibraryNotFoundException}: a native library could not be loaded
 *   <li>{@link io.nccl4j.rendezvous.RendezvousException}: the ranks could not exchange an id
 * </ul>
 *
 * <p>A programming error throws an {@link IllegalArgumentException}, an {@link
 * IllegalStateException} or a {@link NullPointerException} instead.
 */
@NullMarked
public abstract class Nccl4jException extends RuntimeException {
  private static final long serialVersionUID = 1;

  /**
   * Creates an exception.
   *
   * @param message what failed
   */
  protected Nccl4jException(String message) {
    super(message);
  }

  /**
   * Creates an exception with a cause.
   *
   * @param message what failed
   * @param cause why it failed; may be null
   */
  protected Nccl4jException(String message, @Nullable Throwable cause) {
    super(message, cause);
  }

  /** {@return what failed; never null, empty if no message was given} */
  @Override
  public String getMessage() {
    return Objects.requireNonNullElse(super.getMessage(), "");
  }
}
