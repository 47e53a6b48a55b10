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

  /** {@return the memory of this rank that the call reads, or null} */
  @Override
  default Buffer reads() {
    return null;
  }

  /** {@return null: such a call writes to other ranks' memory alone} */
  @Override
  default Buffer writes() {
    return null;
  }

  @Override
  default List<Buffer> operands() {
    return reads() == null ? List.of() : List.of(reads());
  }
}
