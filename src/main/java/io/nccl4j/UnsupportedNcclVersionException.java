package io.nccl4j;

import org.jspecify.annotations.NullMarked;

/** Thrown when the loaded NCCL library is too old for a function; the function is not called. */
@NullMarked
public class UnsupportedNcclVersionException extends NcclException {
  private static final long serialVersionUID = 1;

  /** The version that was found. */
  private final String found;

  /** The first version that has the function. */
  private final String needed;

  /**
   * Creates an exception for a function that the library does not have.
   *
   * @param function the function that is missing, such as {@code ncclCommSplit}
   * @param found the version that was found, such as {@code 2.16.2}
   * @param needed the first version that has the function, such as {@code 2.18}
   */
  public UnsupportedNcclVersionException(String function, String found, String needed) {
    super(
        function,
        NcclResult.INVALID_USAGE.code(),
        "needs NCCL " + needed + " or later, found " + found,
        "");
    this.found = found;
    this.needed = needed;
  }

  /** {@return the version that was found} */
  public String found() {
    return found;
  }

  /** {@return the first version that has the function} */
  public String needed() {
    return needed;
  }
}
