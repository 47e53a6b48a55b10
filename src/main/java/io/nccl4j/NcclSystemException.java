package io.nccl4j;

import org.jspecify.annotations.NullMarked;

/**
 * Thrown when a call of the library to the operating system or to CUDA fails: {@link
 * NcclResult#SYSTEM_ERROR} or {@link NcclResult#UNHANDLED_CUDA_ERROR}.
 */
@NullMarked
public class NcclSystemException extends NcclException {
  private static final long serialVersionUID = 1;

  NcclSystemException(String function, int code, String text, String lastError) {
    super(function, code, text, lastError);
  }
}
