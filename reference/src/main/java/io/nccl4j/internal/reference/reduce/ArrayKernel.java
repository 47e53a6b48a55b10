package io.nccl4j.internal.reference.reduce;

import java.lang.foreign.MemorySegment;
import java.util.function.Function;

/**
 * Kernel whose loops work on arrays that fit in the first-level cache. Slices are copied into the
 * arrays tile by tile, because the compiler vectorizes loops over arrays, but not over two off-heap
 * segments that might overlap.
 *
 * @param <A> the type of the array of elements
 */
abstract class ArrayKernel<A> extends Kernel {
  /** The size of each array. */
  static final int TILE_BYTES = 8 << 10;

  /**
   * The size of the tiles if the data does not fit in the caches: so small that all inputs and
   * outputs advance together, within the prefetch distance of processors.
   */
  private static final int STREAMING_BYTES = 2 << 10;

  /** Up to this size of a rank's data, tiles are as large as possible. */
  private static final long CACHED_BYTES = 4 << 20;

  private final int tileCount;
  private final int streamingCount;
  private final int blockCount;
  private final Tile<A> own;
  private final Tile<A> other;
  private boolean cached;

  /**
   * Creates a kernel with its two arrays of {@code TILE_BYTES} each.
   *
   * @param view returns an array as a memory segment
   */
  ArrayKernel(int elementBytes, A own, A other, Function<A, MemorySegment> view) {
    super(elementBytes);
    this.tileCount = TILE_BYTES / elementBytes;
    this.streamingCount = STREAMING_BYTES / elementBytes;
    this.blockCount = MappedViews.BLOCK_BYTES / elementBytes;
    this.own = new Tile<>(own, view.apply(own));
    this.other = new Tile<>(other, view.apply(other));
  }

  /** Returns the array for sums. */
  final A own() {
    return own.array();
  }

  @Override
  final void prepare(long bytes) {
    cached = bytes <= CACHED_BYTES;
  }

  @Override
  final void scale(
      long factor,
      MemorySegment from,
      long fromOffset,
      MemorySegment out,
      long outOffset,
      long count) {
    for (long done = 0; done < count; done += tileCount) {
      int tile = (int) Math.min(tileCount, count - done);
      long at = done * elementBytes();
      long bytes = (long) tile * elementBytes();
      MemorySegment.copy(from, fromOffset + at, own.view(), 0, bytes);
      scale(own.array(), factor, tile);
      MemorySegment.copy(own.view(), 0, out, outOffset + at, bytes);
    }
  }

  @Override
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
    boolean sums = kind == ReductionOp.Kind.SUM && !scales;
    boolean inPlace = false;
    for (long done = 0; done < count; done += tileCount) {
      int tile = (int) Math.min(tileCount, count - done);
      long at = done * elementBytes();
      long bytes = (long) tile * elementBytes();
      if (sums && done % blockCount == 0) {
        inPlace = open(left, leftOffset + at, right, rightOffset + at);
      }
      if (inPlace) {
        sum(left, leftOffset + at, right, rightOffset + at, tile);
      } else {
        MemorySegment.copy(left, leftOffset + at, own.view(), 0, bytes);
        MemorySegment.copy(right, rightOffset + at, other.view(), 0, bytes);
        if (scales) {
          scale(own.array(), factor, tile);
        }
        combine(kind, own, other, tile);
      }
      if (divisor != 1) {
        divide(own.array(), divisor, tile);
      }
      MemorySegment.copy(own.view(), 0, out, outOffset + at, bytes);
    }
  }

  @Override
  final void reduce(
      ReductionOp.Kind kind,
      MemorySegment[] from,
      boolean scales,
      long[] factors,
      int[] order,
      int first,
      MemorySegment[] to,
      long offset,
      long count,
      int divisor) {
    boolean sums = kind == ReductionOp.Kind.SUM && !scales;
    boolean inPlace = false;
    int largestTile = cached || slow(scales) ? tileCount : streamingCount;
    long tile;
    for (long done = 0; done < count; done += tile) {
      long at = offset + done * elementBytes();
      if (sums && done % blockCount == 0) {
        inPlace = open(from, at);
      }
      tile = Math.min(inPlace ? streamingCount : largestTile, count - done);
      Tile<A> result = own;
      if (inPlace) {
        sum(from, order, first, at, (int) tile);
      } else {
        result = reduce(kind, from, scales, factors, order, first, at, (int) tile);
      }
      if (divisor != 1) {
        divide(result.array(), divisor, (int) tile);
      }
      for (MemorySegment out : to) {
        MemorySegment.copy(result.view(), 0, out, at, tile * elementBytes());
      }
    }
  }

  private Tile<A> reduce(
      ReductionOp.Kind kind,
      MemorySegment[] from,
      boolean scales,
      long[] factors,
      int[] order,
      int first,
      long at,
      int count) {
    Tile<A> result = other;
    Tile<A> next = own;
    for (int turn = 0; turn < from.length; turn++) {
      int rank = order[first + turn];
      MemorySegment.copy(from[rank], at, next.view(), 0, (long) count * elementBytes());
      if (scales) {
        scale(next.array(), factors[rank], count);
      }
      if (turn > 0) {
        combine(kind, next, result, count);
      }
      Tile<A> free = result;
      result = next;
      next = free;
    }
    return result;
  }

  private void combine(ReductionOp.Kind kind, Tile<A> left, Tile<A> right, int count) {
    switch (kind) {
      case SUM -> sum(left.array(), right.array(), count);
      case PROD -> prod(left.array(), right.array(), count);
      case MAX -> max(left, right, count);
      default -> min(left, right, count);
    }
  }

  /**
   * Prepares to sum two ranges, of at most {@link MappedViews#BLOCK_BYTES}, in place; returns
   * whether that is supported.
   */
  boolean open(MemorySegment left, long leftOffset, MemorySegment right, long rightOffset) {
    return false;
  }

  /** Prepares to sum ranges of several ranks in place; returns whether that is supported. */
  boolean open(MemorySegment[] from, long offset) {
    return false;
  }

  /** Returns whether the loops are slower than main memory. */
  boolean slow(boolean scales) {
    return false;
  }

  /** Sums a tile of two ranges, which {@link #open} has prepared, into the {@link #own} array. */
  void sum(MemorySegment left, long leftOffset, MemorySegment right, long rightOffset, int count) {
    throw new UnsupportedOperationException("no range is open");
  }

  /** Sums a tile of several ranks, which {@link #open} has prepared, into {@link #own}. */
  void sum(MemorySegment[] from, int[] order, int first, long offset, int count) {
    throw new UnsupportedOperationException("no range is open");
  }

  /** Adds the right elements to the left ones. */
  abstract void sum(A left, A right, int count);

  abstract void prod(A left, A right, int count);

  void max(Tile<A> left, Tile<A> right, int count) {
    throw new UnsupportedOperationException("floats use a MinMaxKernel");
  }

  void min(Tile<A> left, Tile<A> right, int count) {
    throw new UnsupportedOperationException("floats use a MinMaxKernel");
  }

  /** Multiplies by a factor, given as raw bits of the type. */
  abstract void scale(A tile, long factor, int count);

  /** Divides integers, truncating; floating-point types are never divided. */
  void divide(A tile, int divisor, int count) {
    throw new UnsupportedOperationException("floats are averaged by a factor");
  }
}
