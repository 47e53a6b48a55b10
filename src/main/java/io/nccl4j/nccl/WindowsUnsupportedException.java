package io.nccl4j.nccl;

import io.nccl4j.NcclException;
import io.nccl4j.NcclResult;

/**
 * The communicator has no windows: its ranks cannot all reach each other's memory directly, or
 * {@code NCCL_WIN_ENABLE=0} or {@code NCCL_CUMEM_ENABLE=0} is set. NCCL answers success then, with
 * a null window; nothing was registered, on any rank.
 */
public class WindowsUnsupportedException extends NcclException {
  private static final long serialVersionUID = 1;

  /**
   * Describes one registration that NCCL left undone.
   *
   * @param communicator the communicator that has no windows
   */
  public WindowsUnsupportedException(String communicator) {
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
