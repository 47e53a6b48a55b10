package io.nccl4j;

/**
 * The library refused an argument or a sequence of calls: {@link NcclResult#INVALID_ARGUMENT} or
 * {@link NcclResult#INVALID_USAGE}.
 */
public class NcclInvalidUsageException extends NcclException {
  private static final long serialVersionUID = 1;

  /**
   * Describes one failed call.
   *
   * @param function the function that failed
   * @param code the raw result code
   * @param text what went wrong, in the library's words
   * @param lastError the library's last-error text, or an empty string
   */
  public NcclInvalidUsageException(String function, int code, String text, String lastError) {
    super(function, code, text, lastError);
  }
}
