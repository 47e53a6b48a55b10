package io.nccl4j;

import java.util.List;

/**
 * A call that one backend alone has and that takes part in groups and graphs like any operation.
 * The backend checks its arguments before it submits it.
 */
public non-sealed interface BackendCall extends GroupCall {
  /**
   * Launches the call outside any group.
   *
   * @throws NcclException if the library refuses it
   */
  void launch();

  @Override
  default List<Buffer> operands() {
    return List.of();
  }
}
