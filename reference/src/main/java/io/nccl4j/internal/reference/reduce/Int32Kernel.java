package io.nccl4j.internal.reference.reduce;

import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.IntBuffer;

/** Signed and unsigned 32-bit integers. */
final class Int32Kernel extends BufferKernel<int[], IntBuffer> {
  private final boolean unsigned;

  Int32Kernel(boolean unsigned) {
    super(
        4,
        new int[TILE_BYTES / 4],
        new int[TILE_BYTES / 4],
        MemorySegment::ofArray,
        ByteBuffer::asIntBuffer);
    this.unsigned = unsigned;
  }

  @Override
  void sum(int[] left, int[] right, int count) {
    for (int i = 0; i < count; i++) {
      left[i] += right[i];
    }
  }

  @Override
  void sum(IntBuffer left, int leftAt, IntBuffer right, int rightAt, int[] into, int count) {
    int length = Math.min(count, TILE_BYTES / 4);
    int leftBegin = leftAt & INDEX_MASK;
    int rightBegin = rightAt & INDEX_MASK;
    for (int i = 0; i < length; i++) {
      into[i] = left.get(leftBegin + i) + right.get(rightBegin + i);
    }
  }

  @Override
  void sum(IntBuffer left, int at, int[] into, int count) {
    int length = Math.min(count, TILE_BYTES / 4);
    int begin = at & INDEX_MASK;
    for (int i = 0; i < length; i++) {
      into[i] = left.get(begin + i) + into[i];
    }
  }

  @Override
  void prod(int[] left, int[] right, int count) {
    for (int i = 0; i < count; i++) {
      left[i] *= right[i];
    }
  }

  @Override
  void max(Tile<int[]> left, Tile<int[]> right, int count) {
    max(left.array(), right.array(), flip(), count);
  }

  private static void max(int[] left, int[] right, int flip, int count) {
    for (int i = 0; i < count; i++) {
      left[i] = Math.max(left[i] ^ flip, right[i] ^ flip) ^ flip;
    }
  }

  @Override
  void min(Tile<int[]> left, Tile<int[]> right, int count) {
    min(left.array(), right.array(), flip(), count);
  }

  private static void min(int[] left, int[] right, int flip, int count) {
    for (int i = 0; i < count; i++) {
      left[i] = Math.min(left[i] ^ flip, right[i] ^ flip) ^ flip;
    }
  }

  /** Returns the mask that maps the order of this type to that of signed integers, and back. */
  private int flip() {
    return unsigned ? Integer.MIN_VALUE : 0;
  }

  @Override
  void scale(int[] tile, long factor, int count) {
    int by = (int) factor;
    for (int i = 0; i < count; i++) {
      tile[i] = tile[i] * by;
    }
  }

  @Override
  void divide(int[] tile, int divisor, int count) {
    // Rounded up; the error is too small to affect a 32-bit quotient.
    long reciprocal = Long.divideUnsigned(-1, divisor) + 1;
    if (unsigned) {
      for (int i = 0; i < count; i++) {
        tile[i] = (int) Math.unsignedMultiplyHigh(tile[i] & 0xFFFFFFFFL, reciprocal);
      }
    } else if (Integer.bitCount(divisor) == 1) {
      shift(tile, Integer.numberOfTrailingZeros(divisor), count);
    } else {
      for (int i = 0; i < count; i++) {
        // Negative products are rounded down, and none is an integer, since the reciprocal is not.
        tile[i] = (int) Math.multiplyHigh(tile[i], reciprocal) + (tile[i] >>> 31);
      }
    }
  }

  /** Divides signed numbers by a power of two. */
  private static void shift(int[] tile, int power, int count) {
    int below = (1 << power) - 1;
    for (int i = 0; i < count; i++) {
      tile[i] = (tile[i] + ((tile[i] >> 31) & below)) >> power;
    }
  }
}
