package io.nccl4j;

import org.jspecify.annotations.NullMarked;

/**
 * Thrown when the library rejects an argument or a sequence of calls: {@link
 * NcclResult#INVALID_ARGUMENT} or {@link NcclResult#INVALID_USAGE}.
 */
@NullMarked
public class NcclInvalidUsageException extends NcclException {
  private static final long serialVersionUID = 1;

  /**
   * Creates an exception for one failed call.
   *
   * @param function the function that failed
   * @param code the raw {@code ncclResult_t} code
   * @param text the library's error text
   * @param lastError the library's last-error text, or an empty string
   */
  public NcclInvalidUsageException(String function, int code, String text, String lastError) {
    super(function, code, text, lastError);
  }
}
