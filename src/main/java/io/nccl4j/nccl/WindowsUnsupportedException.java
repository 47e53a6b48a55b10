package io.nccl4j.nccl;

import io.nccl4j.NcclException;
import io.nccl4j.NcclResult;
import org.jspecify.annotations.NullMarked;

/**
 * Thrown if a communicator does not support windows: not all of its ranks can access each other's
 * memory directly, or {@code NCCL_WIN_ENABLE=0} or {@code NCCL_CUMEM_ENABLE=0} is set. NCCL reports
 * this as success with a null window; nothing is registered on any rank.
 */
@NullMarked
public class WindowsUnsupportedException extends NcclException {
  private static final long serialVersionUID = 1;

  /** Creates an exception for a communicator that does not support windows. */
  WindowsUnsupportedException(String communicator) {
    super(
        "ncclCommWindowRegister",
        NcclResult.INVALID_USAGE.code(),
        "windows are not supported on "
            + communicator
            + ": its ranks cannot all reach each other's memory, or NCCL_WIN_ENABLE=0 or"
            + " NCCL_CUMEM_ENABLE=0 is set",
        "");
  }
}
