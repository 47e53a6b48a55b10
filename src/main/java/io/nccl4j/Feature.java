package io.nccl4j;

/**
 * What some backends can do and others, older or smaller, cannot. {@link Backend#supports} says
 * which without trying; what is used all the same is refused with an exception that says why,
 * before anything is called.
 */
public enum Feature {
  /** Communicators made from a part of another's ranks: {@link Communicator#split(int, int)}. */
  SPLIT,
  /** Communicators that lose ranks: {@link Communicator#shrink}. */
  SHRINK,
  /** Communicators that gain ranks: {@link Communicator#newGrowId}. */
  GROW,
  /**
   * Communicators made from several ids, which share the work of the meeting: {@link
   * io.nccl4j.nccl.NcclBackend#newCommunicator(java.util.List, int, int,
   * io.nccl4j.nccl.NcclConfig)}.
   */
  SEVERAL_IDS,
  /**
   * Communicators stopped for good but not freed: {@link io.nccl4j.nccl.NcclCommunicator#revoke}.
   */
  REVOKE,
  /**
   * Communicators that give their memory back for a while: {@link
   * io.nccl4j.nccl.NcclCommunicator#suspend}.
   */
  SUSPEND,
  /** What a communicator holds: {@link io.nccl4j.nccl.NcclCommunicator#memoryStatistics}. */
  MEMORY_STATISTICS,
  /**
   * Buffers registered with a communicator, and memory made for that: {@link
   * io.nccl4j.nccl.NcclCommunicator#register}, {@link
   * io.nccl4j.nccl.NcclBackend#newRegistrableBuffer}.
   */
  REGISTRATION,
  /**
   * Memory that all ranks register together: {@link
   * io.nccl4j.nccl.NcclCommunicator#registerWindow}. Whether a communicator's devices and memory
   * allow it, only the registration tells.
   */
  WINDOWS,
  /** Where a window's memory is: {@link io.nccl4j.nccl.Window#userBuffer}. */
  WINDOW_ADDRESSES,
  /**
   * Writing into a peer's window without its help: {@link
   * io.nccl4j.nccl.NcclCommunicator#putSignal}.
   */
  ONE_SIDED,
  /** How long a group would take: {@link io.nccl4j.nccl.NcclBackend#estimate}. */
  GROUP_ESTIMATES,
  /** The settings that the library runs with: {@link io.nccl4j.nccl.NcclBackend#parameters}. */
  PARAMETERS,
  /**
   * Reductions of inputs that each rank has multiplied by a factor of its own: {@link
   * Communicator#newPreMulSum(DataType, double)}.
   */
  PRE_MUL_SUM,
  /** Operations recorded once and launched many times: {@link Graph}. */
  GRAPHS,
  /** Moving {@link DataType#FLOAT8E4M3} and {@link DataType#FLOAT8E5M2}: all but reductions. */
  FLOAT8_DATA,
  /** Reducing {@link DataType#FLOAT8E4M3} and {@link DataType#FLOAT8E5M2}, on every device. */
  FLOAT8_REDUCTION
}
