package io.nccl4j.reference;

import io.nccl4j.DataType;
import java.lang.foreign.MemorySegment;
import java.util.function.Function;

/**
 * The loops over the elements of one type. They run on arrays that fit the first-level cache, into
 * which slices are copied piece by piece: the compiler vectorizes loops over arrays, and cannot
 * over two off-heap segments that might overlap.
 *
 * @param <A> the array that holds elements of the type
 */
abstract class Kernel<A> {
  /** The size of each array. */
  static final int TILE_BYTES = 8 << 10;

  private final int elementBytes;
  private final int tileCount;
  private final A own;
  private final A other;
  private final MemorySegment ownView;
  private final MemorySegment otherView;

  /**
   * Makes a kernel with its two arrays, {@code TILE_BYTES} long each.
   *
   * @param view gives an array as memory
   */
  Kernel(int elementBytes, A own, A other, Function<A, MemorySegment> view) {
    this.elementBytes = elementBytes;
    this.tileCount = TILE_BYTES / elementBytes;
    this.own = own;
    this.other = other;
    this.ownView = view.apply(own);
    this.otherView = view.apply(other);
  }

  static Kernel<?> of(DataType type) {
    return switch (type) {
      case INT8 -> new Int8Kernel(false);
      case UINT8 -> new Int8Kernel(true);
      case INT32 -> new Int32Kernel(false);
      case UINT32 -> new Int32Kernel(true);
      case INT64 -> new Int64Kernel(false);
      case UINT64 -> new Int64Kernel(true);
      case FLOAT16 -> new Float16Kernel();
      case FLOAT32 -> new Float32Kernel();
      case FLOAT64 -> new Float64Kernel();
      case BFLOAT16 -> new Bfloat16Kernel();
      case FLOAT8E4M3, FLOAT8E5M2 -> new Float8Kernel(type);
    };
  }

  final int elementBytes() {
    return elementBytes;
  }

  /** Returns the left array of a combination as memory. */
  final MemorySegment ownView() {
    return ownView;
  }

  /** Returns the right array of a combination as memory. */
  final MemorySegment otherView() {
    return otherView;
  }

  /** Multiplies elements with a factor. */
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
      MemorySegment.copy(from, fromOffset + at, ownView, 0, bytes);
      scale(own, factor, tile);
      MemorySegment.copy(ownView, 0, out, outOffset + at, bytes);
    }
  }

  /**
   * Combines two runs of elements.
   *
   * @param how one of the first four kinds
   * @param scales whether elements of {@code left} are multiplied with {@code factor} before
   * @param divisor what results are divided by; 1 for nothing
   */
  final void combine(
      Operator.Kind how,
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
      MemorySegment.copy(left, leftOffset + at, ownView, 0, bytes);
      MemorySegment.copy(right, rightOffset + at, otherView, 0, bytes);
      if (scales) {
        scale(own, factor, tile);
      }
      switch (how) {
        case SUM -> sum(own, other, tile);
        case PROD -> prod(own, other, tile);
        case MAX -> max(own, other, tile);
        default -> min(own, other, tile);
      }
      if (divisor != 1) {
        divide(own, divisor, tile);
      }
      MemorySegment.copy(ownView, 0, out, outOffset + at, bytes);
    }
  }

  abstract void sum(A left, A right, int count);

  abstract void prod(A left, A right, int count);

  abstract void max(A left, A right, int count);

  abstract void min(A left, A right, int count);

  /** Multiplies with a factor that is given as raw bits of the type. */
  abstract void scale(A tile, long factor, int count);

  /** Divides integers, truncating; no floating-point type is ever divided. */
  void divide(A tile, int divisor, int count) {
    throw new UnsupportedOperationException("floats are averaged by a factor");
  }
}
