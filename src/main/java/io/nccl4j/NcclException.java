package io.nccl4j;

/**
 * A call of the collectives' library failed: NCCL's own, or the reference backend's, with the same
 * results.
 *
 * <p>Subclasses are the kinds that a caller would handle differently. An argument that nccl4j
 * itself refuses is no {@code NcclException} but an {@link IllegalArgumentException}, {@link
 * IllegalStateException} or {@link NullPointerException}, thrown before any native call.
 */
public class NcclException extends RuntimeException {
  private static final long serialVersionUID = 1;

  /** The function that failed, such as {@code ncclAllReduce}. */
  private final String function;

  /** What it answered. */
  private final Result result;

  /** The raw code of {@code ncclResult_t}. */
  private final int code;

  /** What went wrong, in the library's words. */
  private final String text;

  /** The library's last-error text, or an empty string. */
  private final String lastError;

  /**
   * Describes one failed call.
   *
   * @param function the function that failed, such as {@code ncclAllReduce}
   * @param code the raw result code, of {@code ncclResult_t}
   * @param text what went wrong, in the library's words
   * @param lastError the library's last-error text, or an empty string. NCCL keeps one such text
   *     per process: it may stem from an earlier call, also of another thread
   */
  public NcclException(String function, int code, String text, String lastError) {
    super(message(function, code, text, lastError));
    this.function = function;
    this.result = Result.ofCode(code);
    this.code = code;
    this.text = text;
    this.lastError = lastError;
  }

  /**
   * Makes the exception of the kind that a result belongs to.
   *
   * @param function the function that failed
   * @param code the raw result code, of {@code ncclResult_t}
   * @param text what went wrong, in the library's words
   * @param lastError the library's last-error text, or an empty string
   * @return the exception, to be thrown
   */
  public static NcclException of(String function, int code, String text, String lastError) {
    return switch (Result.ofCode(code)) {
      case INVALID_ARGUMENT, INVALID_USAGE ->
          new NcclInvalidUsageException(function, code, text, lastError);
      case REMOTE_ERROR -> new NcclRemoteException(function, code, text, lastError);
      case UNHANDLED_CUDA_ERROR, SYSTEM_ERROR ->
          new NcclSystemException(function, code, text, lastError);
      case TIMEOUT -> new NcclTimeoutException(function, code, text, lastError);
      default -> new NcclException(function, code, text, lastError);
    };
  }

  private static String message(String function, int code, String text, String lastError) {
    String call = function + ": " + text + " (" + Result.ofCode(code) + ", code " + code + ")";
    return lastError.isBlank() ? call : call + "; last error: " + lastError.strip();
  }

  /** {@return the function that failed, such as {@code ncclAllReduce}} */
  public final String function() {
    return function;
  }

  /** {@return what it answered; {@link Result#UNKNOWN} for a code that nccl4j does not know} */
  public final Result result() {
    return result;
  }

  /** {@return the raw code that it answered} */
  public final int code() {
    return code;
  }

  /** {@return what went wrong, in the library's words} C: {@code ncclGetErrorString}. */
  public final String text() {
    return text;
  }

  /**
   * {@return the library's last-error text, or an empty string} It is per process and may stem from
   * an earlier call. C: {@code ncclGetLastError}.
   */
  public final String lastError() {
    return lastError;
  }
}
