package io.nccl4j;

import org.jspecify.annotations.NullMarked;

/**
 * The result of a call. The codes are those of {@code ncclResult_t}; the reference backend uses the
 * same codes.
 *
 * @see <a
 *     href="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api/types.html#ncclresult-t">ncclResult_t</a>
 */
@NullMarked
public enum NcclResult {
  /** The call succeeded. */
  SUCCESS(0),
  /** A call to the CUDA runtime or driver failed. */
  UNHANDLED_CUDA_ERROR(1),
  /** A call to the operating system failed. */
  SYSTEM_ERROR(2),
  /** The library detected an inconsistent internal state, or memory was corrupted. */
  INTERNAL_ERROR(3),
  /** An argument has a value that is not allowed. */
  INVALID_ARGUMENT(4),
  /** The call is not allowed in this state or in this combination. */
  INVALID_USAGE(5),
  /** A peer failed, or the connection to it was lost. */
  REMOTE_ERROR(6),
  /** The operation has not finished; never a success. */
  IN_PROGRESS(7),
  /** A timeout expired. */
  TIMEOUT(8),
  /** A code that this version of nccl4j does not know; always a failure. */
  UNKNOWN(-1);

  private final int code;

  NcclResult(int code) {
    this.code = code;
  }

  /** {@return the {@code ncclResult_t} code, or -1 for {@link #UNKNOWN}} */
  public int code() {
    return code;
  }

  /**
   * {@return the result of an {@code ncclResult_t} code; {@link #UNKNOWN} for an unknown code}
   *
   * @param code a raw code, of any version of NCCL
   */
  public static NcclResult ofCode(int code) {
    for (NcclResult result : values()) {
      if (result.code == code && result != UNKNOWN) {
        return result;
      }
    }
    return UNKNOWN;
  }
}
