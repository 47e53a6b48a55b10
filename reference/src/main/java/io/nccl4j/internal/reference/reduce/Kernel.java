package io.nccl4j.internal.reference.reduce;

import java.lang.foreign.MemorySegment;

/** The loops over the elements of one type. */
abstract class Kernel {
  private final int elementBytes;

  Kernel(int elementBytes) {
    this.elementBytes = elementBytes;
  }

  final int elementBytes() {
    return elementBytes;
  }

  /** Prepares for reductions of data of this size, which may be processed in parts. */
  void prepare(long bytes) {}

  /** Multiplies elements by a factor, given as raw bits of the type. */
  abstract void scale(
      long factor,
      MemorySegment from,
      long fromOffset,
      MemorySegment out,
      long outOffset,
      long count);

  /**
   * Combines two ranges of elements.
   *
   * @param kind one of the first four kinds
   * @param scales whether elements of {@code left} are first multiplied by {@code factor}
   * @param divisor the divisor of the results; 1 for none
   */
  abstract void combine(
      ReductionOp.Kind kind,
      MemorySegment left,
      long leftOffset,
      boolean scales,
      long factor,
      MemorySegment right,
      long rightOffset,
      MemorySegment out,
      long outOffset,
      long count,
      int divisor);

  /**
   * Combines the ranges of several ranks, which are at the same offset in each rank's memory, and
   * stores the result at that offset to each rank. Each step is a {@code combine} with the rank's
   * own range on the left and the partial result on the right.
   *
   * @param kind one of the first four kinds
   * @param scales whether elements of a rank are first multiplied by its factor
   * @param order the ranks
   * @param first the index in {@code order} at which to begin; every rank is used once
   * @param to the output of each rank; may be the memory that is read
   * @param divisor the divisor of the results; 1 for none
   */
  abstract void reduce(
      ReductionOp.Kind kind,
      MemorySegment[] from,
      boolean scales,
      long[] factors,
      int[] order,
      int first,
      MemorySegment[] to,
      long offset,
      long count,
      int divisor);

  /** Drops all references to memory. */
  void forget() {}
}
