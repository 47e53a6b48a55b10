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

  /** Gets ready for reductions of data of this size, of which it may be given a part at a time. */
  void prepare(long bytes) {}

  /** Multiplies elements with a factor. */
  abstract void scale(
      long factor,
      MemorySegment from,
      long fromOffset,
      MemorySegment out,
      long outOffset,
      long count);

  /**
   * Combines two runs of elements.
   *
   * @param how one of the first four kinds
   * @param scales whether elements of {@code left} are multiplied with {@code factor} before
   * @param divisor what results are divided by; 1 for nothing
   */
  abstract void combine(
      ReductionOp.Kind how,
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
   * Combines the runs of several ranks, which lie at one offset in each rank's memory, and stores
   * the result at that offset to each rank. Each step is that of {@code combine} with the rank's
   * own run on the left, and what came before on the right.
   *
   * @param how one of the first four kinds
   * @param scales whether elements of a rank are multiplied with its factor before
   * @param order the ranks
   * @param first where in {@code order} to begin; every rank is taken once
   * @param to where results go; may be the very memory that is read
   * @param divisor what results are divided by; 1 for nothing
   */
  abstract void reduce(
      ReductionOp.Kind how,
      MemorySegment[] from,
      boolean scales,
      long[] factors,
      int[] order,
      int first,
      MemorySegment[] to,
      long offset,
      long count,
      int divisor);

  /** Keeps no memory reachable that it has worked on. */
  void forget() {}
}
