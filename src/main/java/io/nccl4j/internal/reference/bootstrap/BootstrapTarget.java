package io.nccl4j.internal.reference.bootstrap;

import io.nccl4j.internal.util.Deadline;

/** Where those are let in who come by an id: what all meet for, and who may come. */
public interface BootstrapTarget {
  /**
   * A rank that comes by an id.
   *
   * @param size how many ranks it wants there to be
   * @param options what it does its work with, as text
   * @param at its process, or null where it is this one
   */
  record JoinRequest(int size, int rank, String options, ProcessAddress process) {}

  /**
   * Lets a rank in, and returns where it waits for the others.
   *
   * @param deadline for the way to the process that convenes; null where that is this one
   * @throws io.nccl4j.NcclException if the rank cannot take part
   */
  Bootstrap admit(JoinRequest visitor, Deadline deadline);

  /** Lets another process know how the meeting of a visitor stands. */
  void addListener(JoinRequest visitor, Bootstrap.StateListener audience);

  /** Returns whether it belongs to a communicator that grows. */
  boolean grows();

  /** Fails all ranks that have arrived, and those that have found this and arrive later. */
  void fail(String why);
}
