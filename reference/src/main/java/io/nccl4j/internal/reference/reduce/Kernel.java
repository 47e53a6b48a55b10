package io.nccl4j.internal.reference.reduce;

import java.lang.foreign.MemorySegment;
import java.util.function.Function;
import java.util.function.IntFunction;

/**
 * The loops over the elements of one type. They work on two arrays that fit in the first-level
 * cache: data is copied into them tile by tile, because the compiler vectorizes loops over arrays,
 * but not over off-heap segments that might overlap.
 *
 * @param <A> the type of the array of elements
 */
abstract class Kernel<A> {
  /** The size of each array. */
  static final int TILE_BYTES = 8 << 10;

  private final int elementBytes;
  private final int tileCount;
  private final A own;
  private final A other;
  private final MemorySegment ownMemory;
  private final MemorySegment otherMemory;

  /**
   * Creates a kernel with its two arrays of {@code TILE_BYTES} each.
   *
   * @param array creates an array of a number of elements
   * @param memory returns an array as a memory segment
   */
  Kernel(int elementBytes, IntFunction<A> array, Function<A, MemorySegment> memory) {
    this.elementBytes = elementBytes;
    this.tileCount = TILE_BYTES / elementBytes;
    this.own = array.apply(tileCount);
    this.other = array.apply(tileCount);
    this.ownMemory = memory.apply(own);
    this.otherMemory = memory.apply(other);
  }

  final int elementBytes() {
    return elementBytes;
  }

  /** Multiplies elements by a factor, given as raw bits of the type. */
  final void scale(
      long factor,
      MemorySegment from,
      long fromOffset,
      MemorySegment out,
      long outOffset,
      long count) {
    for (long done = 0; done < count; done += tileCount) {
      int tile = (int) Math.min(tileCount, count - done);
      long at = done * elementBytes;
      long bytes = (long) tile * elementBytes;
      MemorySegment.copy(from, fromOffset + at, ownMemory, 0, bytes);
      scale(own, factor, tile);
      MemorySegment.copy(ownMemory, 0, out, outOffset + at, bytes);
    }
  }

  /**
   * Combines two ranges of elements.
   *
   * @param kind one of the first four kinds
   * @param scales whether elements of {@code left} are first multiplied by {@code factor}
   * @param divisor the divisor of the results; 1 for none
   */
  final void combine(
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
      int divisor) {
    for (long done = 0; done < count; done += tileCount) {
      int tile = (int) Math.min(tileCount, count - done);
      long at = done * elementBytes;
      long bytes = (long) tile * elementBytes;
      MemorySegment.copy(left, leftOffset + at, ownMemory, 0, bytes);
      MemorySegment.copy(right, rightOffset + at, otherMemory, 0, bytes);
      if (scales) {
        scale(own, factor, tile);
      }
      combine(kind, own, other, tile);
      if (divisor != 1) {
        divide(own, divisor, tile);
      }
      MemorySegment.copy(ownMemory, 0, out, outOffset + at, bytes);
    }
  }

  /**
   * Combines the ranges of several ranks, which are at the same offset in each rank's memory, and
   * stores the result at that offset to each rank.
   *
   * @param kind one of the first four kinds
   * @param scales whether elements of a rank are first multiplied by its factor
   * @param order the ranks in the order of the fold
   * @param to the output of each rank; may be the memory that is read
   * @param divisor the divisor of the results; 1 for none
   */
  final void reduce(
      ReductionOp.Kind kind,
      MemorySegment[] from,
      boolean scales,
      long[] factors,
      int[] order,
      MemorySegment[] to,
      long offset,
      long count,
      int divisor) {
    for (long done = 0; done < count; done += tileCount) {
      int tile = (int) Math.min(tileCount, count - done);
      long at = offset + done * elementBytes;
      long bytes = (long) tile * elementBytes;
      for (int turn = 0; turn < from.length; turn++) {
        int rank = order[turn];
        A next = turn == 0 ? own : other;
        MemorySegment.copy(from[rank], at, turn == 0 ? ownMemory : otherMemory, 0, bytes);
        if (scales) {
          scale(next, factors[rank], tile);
        }
        if (turn > 0) {
          combine(kind, own, other, tile);
        }
      }
      if (divisor != 1) {
        divide(own, divisor, tile);
      }
      for (MemorySegment out : to) {
        MemorySegment.copy(ownMemory, 0, out, at, bytes);
      }
    }
  }

  /** Combines each left element with the right one; the kind is one of the first four. */
  abstract void combine(ReductionOp.Kind kind, A left, A right, int count);

  /** Multiplies by a factor, given as raw bits of the type. */
  abstract void scale(A tile, long factor, int count);

  /** Divides integers, truncating; floating-point types are never divided. */
  void divide(A tile, int divisor, int count) {
    throw new UnsupportedOperationException("floats are averaged by a factor");
  }
}
