package io.nccl4j.internal.reference.bootstrap;

import io.nccl4j.internal.util.Deadline;

/** The bootstrap that a unique id leads to; it admits the ranks that join by the id. */
public interface BootstrapTarget {
  /**
   * A rank's request to join by an id.
   *
   * @param size the number of ranks that it expects
   * @param options its options, as text
   * @param process its process, or null for this one
   */
  record JoinRequest(int size, int rank, String options, ProcessAddress process) {}

  /**
   * Admits a rank, and returns the bootstrap in which it waits for the others.
   *
   * @param deadline for connecting to the coordinating process; null where that is this one
   * @throws io.nccl4j.NcclException if the rank cannot take part
   */
  Bootstrap admit(JoinRequest request, Deadline deadline);

  /** Notifies another process of the state of the bootstrap that a request joins. */
  void addListener(JoinRequest request, Bootstrap.StateListener listener);

  /** Returns whether the id is that of a grow. */
  boolean grows();

  /** Fails all ranks that have arrived, and those that hold this target and arrive later. */
  void fail(String why);
}
