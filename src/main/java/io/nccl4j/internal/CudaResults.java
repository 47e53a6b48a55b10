package io.nccl4j.internal;

import io.nccl4j.CudaException;
import io.nccl4j.bindings.cudart.cudart_h;

/** Converts result codes of the CUDA runtime to exceptions. */
public final class CudaResults {
  private CudaResults() {}

  /** Throws a {@link CudaException} unless the result is {@code cudaSuccess}. */
  public static void check(int result, String function) {
    if (result != 0) {
      throw failure(result, function);
    }
  }

  /** Returns the exception for a failed call, with the runtime's texts. */
  public static CudaException failure(int result, String function) {
    return failure(result, function, "");
  }

  /** Returns such an exception with a note that explains the runtime's text; may be empty. */
  public static CudaException failure(int result, String function, String note) {
    // The runtime also keeps the error for the next query. Clear it, since it is reported here.
    int pending = cudart_h.cudaGetLastError();
    String text = cudart_h.cudaGetErrorString(result).getString(0);
    String name = cudart_h.cudaGetErrorName(result).getString(0);
    if (pending != 0 && pending != result) {
      text += ", after " + cudart_h.cudaGetErrorName(pending).getString(0);
    }
    if (!note.isEmpty()) {
      text = note + ": " + text;
    }
    return new CudaException(function, result, name, text);
  }
}
