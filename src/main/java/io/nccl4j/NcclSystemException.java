package io.nccl4j;

import org.jspecify.annotations.NullMarked;

/**
 * Thrown when a call of the library to the operating system or to CUDA fails: {@link
 * NcclResult#SYSTEM_ERROR} or {@link NcclResult#UNHANDLED_CUDA_ERROR}.
 */
@NullMarked
public class NcclSystemException extends NcclException {
  private static final long serialVersionUID = 1;

  /**
   * Creates an exception for one failed call.
   *
   * @param function the function that failed
   * @param code the raw {@code ncclResult_t} code
   * @param text the library's error text
   * @param lastError the library's last-error text, or an empty string
   */
  public NcclSystemException(String function, int code, String text, String lastError) {
    super(function, code, text, lastError);
  }
}
