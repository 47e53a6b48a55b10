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
   * Reductions of inputs that each rank has multiplied by a factor of its own: {@link
   * Communicator#preMulSum(DataType, double)}.
   */
  PRE_MUL_SUM,
  /** Operations recorded once and launched many times: {@link Graph}. */
  GRAPHS,
  /** Moving {@link DataType#FLOAT8E4M3} and {@link DataType#FLOAT8E5M2}: all but reductions. */
  FLOAT8_DATA,
  /** Reducing {@link DataType#FLOAT8E4M3} and {@link DataType#FLOAT8E5M2}, on every device. */
  FLOAT8_REDUCTION
}
