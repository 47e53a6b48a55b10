package io.nccl4j;

import org.jspecify.annotations.NullMarked;

/** Thrown when a call of the CUDA runtime fails. */
@NullMarked
public class CudaException extends Nccl4jException {
  private static final long serialVersionUID = 1;

  /** The function that failed, such as {@code cudaMalloc}. */
  private final String function;

  /** The raw code of {@code cudaError_t}. */
  private final int code;

  /** The name of the code in C. */
  private final String errorName;

  /**
   * Creates an exception for one failed call.
   *
   * @param function the function that failed, such as {@code cudaMalloc}
   * @param code the raw {@code cudaError_t} code
   * @param errorName the name of the code in C, such as {@code cudaErrorMemoryAllocation}
   * @param text the runtime's error text
   */
  public CudaException(String function, int code, String errorName, String text) {
    super(function + ": " + text + " (" + errorName + ", code " + code + ")");
    this.function = function;
    this.code = code;
    this.errorName = errorName;
  }

  /** {@return the function that failed} */
  public String function() {
    return function;
  }

  /** {@return the raw {@code cudaError_t} code} */
  public int code() {
    return code;
  }

  /**
   * {@return the name of the code in C, such as {@code cudaErrorMemoryAllocation}} C: {@code
   * cudaGetErrorName}.
   */
  public String errorName() {
    return errorName;
  }
}
