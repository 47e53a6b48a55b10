package io.nccl4j.internal.reference.reduce;

import java.lang.foreign.MemorySegment;
import java.util.function.Function;

/**
 * Loops over arrays that fit the first-level cache, into which slices are copied piece by piece:
 * the compiler vectorizes loops over arrays, and cannot over two off-heap segments that might
 * overlap.
 *
 * @param <A> the array that holds elements of the type
 */
abstract class ArrayKernel<A> extends Kernel {
  /** The size of each array. */
  static final int TILE_BYTES = 8 << 10;

  /**
   * How much of each rank's data is taken at a time if all of it does not stay in the caches: so
   * little that all inputs and outputs move on together, as far as processors look ahead.
   */
  private static final int AHEAD_BYTES = 2 << 10;

  /** Up to this size of a rank's data the loops should be long rather than look ahead. */
  private static final long CACHED_BYTES = 4 << 20;

  private final int tileCount;
  private final int aheadCount;
  private final int blockCount;
  private final Tile<A> own;
  private final Tile<A> other;
  private boolean cached;

  /**
   * Makes a kernel with its two arrays, {@code TILE_BYTES} long each.
   *
   * @param view gives an array as memory
   */
  ArrayKernel(int elementBytes, A own, A other, Function<A, MemorySegment> view) {
    super(elementBytes);
    this.tileCount = TILE_BYTES / elementBytes;
    this.aheadCount = AHEAD_BYTES / elementBytes;
    this.blockCount = MappedViews.BLOCK_BYTES / elementBytes;
    this.own = new Tile<>(own, view.apply(own));
    this.other = new Tile<>(other, view.apply(other));
  }

  /** Returns the array that sums go to. */
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
      int divisor) {
    boolean sums = how == ReductionOp.Kind.SUM && !scales;
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
        combine(how, own, other, tile);
      }
      if (divisor != 1) {
        divide(own.array(), divisor, tile);
      }
      MemorySegment.copy(own.view(), 0, out, outOffset + at, bytes);
    }
  }

  @Override
  final void reduce(
      ReductionOp.Kind how,
      MemorySegment[] from,
      boolean scales,
      long[] factors,
      int[] order,
      int first,
      MemorySegment[] to,
      long offset,
      long count,
      int divisor) {
    boolean sums = how == ReductionOp.Kind.SUM && !scales;
    boolean inPlace = false;
    int most = cached || slow(scales) ? tileCount : aheadCount;
    long tile;
    for (long done = 0; done < count; done += tile) {
      long at = offset + done * elementBytes();
      if (sums && done % blockCount == 0) {
        inPlace = open(from, at);
      }
      tile = Math.min(inPlace ? aheadCount : most, count - done);
      Tile<A> result = own;
      if (inPlace) {
        sum(from, order, first, at, (int) tile);
      } else {
        result = reduce(how, from, scales, factors, order, first, at, (int) tile);
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
      ReductionOp.Kind how,
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
        combine(how, next, result, count);
      }
      Tile<A> free = result;
      result = next;
      next = free;
    }
    return result;
  }

  private void combine(ReductionOp.Kind how, Tile<A> left, Tile<A> right, int count) {
    switch (how) {
      case SUM -> sum(left.array(), right.array(), count);
      case PROD -> prod(left.array(), right.array(), count);
      case MAX -> max(left, right, count);
      default -> min(left, right, count);
    }
  }

  /**
   * Gets ready to sum two runs, of {@link MappedViews#BLOCK_BYTES} at most, where they lie; returns
   * whether it can.
   */
  boolean open(MemorySegment left, long leftOffset, MemorySegment right, long rightOffset) {
    return false;
  }

  /** Gets ready to sum the runs of several ranks likewise; returns whether it can. */
  boolean open(MemorySegment[] from, long offset) {
    return false;
  }

  /** Returns whether loops take so long that memory keeps up with them wherever it is. */
  boolean slow(boolean scales) {
    return false;
  }

  /** Sums a tile of two runs that are open, into the {@link #own} array. */
  void sum(MemorySegment left, long leftOffset, MemorySegment right, long rightOffset, int count) {
    throw new UnsupportedOperationException("nothing is open");
  }

  /** Sums a tile of what several ranks have, which is open, into the {@link #own} array. */
  void sum(MemorySegment[] from, int[] order, int first, long offset, int count) {
    throw new UnsupportedOperationException("nothing is open");
  }

  /** Adds right elements to left ones. */
  abstract void sum(A left, A right, int count);

  abstract void prod(A left, A right, int count);

  void max(Tile<A> left, Tile<A> right, int count) {
    throw new UnsupportedOperationException("floats have an MinMaxKernel");
  }

  void min(Tile<A> left, Tile<A> right, int count) {
    throw new UnsupportedOperationException("floats have an MinMaxKernel");
  }

  /** Multiplies with a factor that is given as raw bits of the type. */
  abstract void scale(A tile, long factor, int count);

  /** Divides integers, truncating; no floating-point type is ever divided. */
  void divide(A tile, int divisor, int count) {
    throw new UnsupportedOperationException("floats are averaged by a factor");
  }
}
