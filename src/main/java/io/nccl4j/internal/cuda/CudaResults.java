package io.nccl4j.internal.cuda;

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

  /** Returns whether a result says that a call is not possible because of a stream capture. */
  public static boolean ofCapture(int result) {
    return result >= cudart_h.cudaErrorStreamCaptureUnsupported()
        && result <= cudart_h.cudaErrorStreamCaptureWrongThread();
  }

  /**
   * Clears this thread's last error if it is the one that a call has just returned, and that is
   * handled. The runtime keeps it for {@code cudaGetLastError}, and other code would take it for a
   * failure of its own. A different error belongs to that code.
   */
  public static void forget(int result) {
    if (result != 0 && cudart_h.cudaPeekAtLastError() == result) {
      cudart_h.cudaGetLastError();
    }
  }

  /**
   * Returns whether a result says that the device has failed and does no more work: CUDA documents
   * that all further work returns the same error, or it is one of the hardware.
   */
  public static boolean ofBrokenDevice(int result) {
    return switch (result) {
      // Errors of memory and NVLink, contained errors; the last ones: tensor memory, MPS, external.
      case 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911 -> true;
      default -> false;
    };
  }

  /** Returns the exception for a failed call, with the runtime's texts. */
  public static CudaException failure(int result, String function) {
    return failure(result, function, "");
  }

  /** Returns such an exception with a note that explains the runtime's text; may be empty. */
  public static CudaException failure(int result, String function, String note) {
    int pending = cudart_h.cudaPeekAtLastError();
    // Reported here.
    forget(result);
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
