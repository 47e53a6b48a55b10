package io.nccl4j.internal;

import io.nccl4j.NcclException;
import io.nccl4j.bindings.nccl.nccl_h;
import java.lang.foreign.MemorySegment;

/**
 * The one place where a result of NCCL becomes an exception. Only {@code ncclSuccess} is a success;
 * unknown codes throw.
 */
public final class NcclResults {
  private NcclResults() {}

  /** Throws the exception of its kind unless the result is {@code ncclSuccess}. */
  public static void check(int result, String function) {
    if (result != 0) {
      throw failure(result, function);
    }
  }

  /**
   * Returns the exception for a result that is not {@code ncclSuccess}, with the library's texts.
   */
  public static NcclException failure(int result, String function) {
    String text = nccl_h.ncclGetErrorString(result).getString(0);
    // One buffer per process that is never cleared: it may be an earlier call's text, and the
    // exception says so.
    String lastError = nccl_h.ncclGetLastError(MemorySegment.NULL).getString(0);
    return NcclException.of(function, result, text, lastError);
  }
}
