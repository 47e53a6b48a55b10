package io.nccl4j.nccl;

import io.nccl4j.NcclException;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.spi.Contract;
import java.lang.foreign.MemorySegment;

/** Converts NCCL result codes to exceptions. Unknown codes are failures. */
final class NcclResults {
  private NcclResults() {}

  /** Throws the exception for the result unless it is {@code ncclSuccess}. */
  static void check(int result, String function) {
    if (result != 0) {
      throw failure(result, function);
    }
  }

  /** Returns the exception for a failed call, with the library's texts. */
  static NcclException failure(int result, String function) {
    String text = nccl_h.ncclGetErrorString(result).getString(0);
    // NCCL has one buffer per process and never clears it. The text may be an earlier call's, which
    // the exception's message mentions.
    String lastError = nccl_h.ncclGetLastError(MemorySegment.NULL).getString(0);
    return Contract.get().failure(function, result, text, lastError);
  }
}
