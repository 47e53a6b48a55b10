package io.nccl4j;

import org.jspecify.annotations.NullMarked;

/**
 * A feature that some backends or versions of NCCL do not have. {@link Backend#supports} reports
 * whether a backend has it. Using an unsupported feature throws an exception that names the reason,
 * before any native call.
 */
@NullMarked
public enum Feature {
  /**
   * Communicators created from a part of the ranks of another: {@link Communicator#split(int,
   * int)}.
   */
  SPLIT,
  /** Communicators that lose ranks: {@link Communicator#shrink}. */
  SHRINK,
  /** Communicators that gain ranks: {@link Communicator#newGrowId}. */
  GROW,
  /**
   * Communicators created from several ids, which distribute the work of the bootstrap: {@link
   * io.nccl4j.nccl.NcclBackend#newCommunicator(java.util.List, int, int,
   * io.nccl4j.nccl.NcclConfig)}.
   */
  SEVERAL_IDS,
  /**
   * Communicators stopped permanently but not freed: {@link
   * io.nccl4j.nccl.NcclCommunicator#revoke}.
   */
  REVOKE,
  /**
   * Communicators that release their memory temporarily: {@link
   * io.nccl4j.nccl.NcclCommunicator#suspend}.
   */
  SUSPEND,
  /**
   * The memory that a communicator uses: {@link io.nccl4j.nccl.NcclCommunicator#memoryStatistics}.
   */
  MEMORY_STATISTICS,
  /**
   * Buffers registered with a communicator, and memory that can be registered: {@link
   * io.nccl4j.nccl.NcclCommunicator#register}, {@link
   * io.nccl4j.nccl.NcclBackend#newRegistrableBuffer}.
   */
  REGISTRATION,
  /**
   * Memory that all ranks register together: {@link
   * io.nccl4j.nccl.NcclCommunicator#registerWindow}. Only the registration itself determines
   * whether the devices and the memory of a communicator support it.
   */
  WINDOWS,
  /**
   * The addresses of a window's memory, also of the peers': {@link
   * io.nccl4j.nccl.Window#userBuffer}, {@link io.nccl4j.nccl.Window#peerAddress}.
   */
  WINDOW_ADDRESSES,
  /** What a communicator can do: {@link io.nccl4j.nccl.NcclCommunicator#properties}. */
  PROPERTIES,
  /**
   * Writing into a peer's window without its participation: {@link
   * io.nccl4j.nccl.NcclCommunicator#putSignal}.
   */
  ONE_SIDED,
  /** Estimates of the duration of a group: {@link io.nccl4j.nccl.NcclBackend#estimate}. */
  GROUP_ESTIMATES,
  /** The effective settings of the library: {@link io.nccl4j.nccl.NcclBackend#parameters}. */
  PARAMETERS,
  /**
   * Reductions of inputs that each rank multiplies by its own factor: {@link
   * Communicator#newPreMulSum(DataType, double)}.
   */
  PRE_MUL_SUM,
  /** Operations recorded once and launched many times: {@link Graph}. */
  GRAPHS,
  /**
   * {@link DataType#FLOAT8E4M3} and {@link DataType#FLOAT8E5M2} in all operations but reductions.
   */
  FLOAT8_DATA,
  /**
   * Reductions of {@link DataType#FLOAT8E4M3} and {@link DataType#FLOAT8E5M2}, on every device.
   * NCCL (seen in 2.30.7) refuses averages and pre-multiplied sums of them by a single rank.
   */
  FLOAT8_REDUCTION
}
