package io.nccl4j.internal.reference.reduce;

import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.LongBuffer;

/** Signed and unsigned 64-bit integers. */
final class Int64Kernel extends BufferKernel<long[], LongBuffer> {
  private final boolean unsigned;

  Int64Kernel(boolean unsigned) {
    super(
        8,
        new long[TILE_BYTES / 8],
        new long[TILE_BYTES / 8],
        MemorySegment::ofArray,
        ByteBuffer::asLongBuffer);
    this.unsigned = unsigned;
  }

  @Override
  void sum(long[] left, long[] right, int count) {
    for (int i = 0; i < count; i++) {
      left[i] += right[i];
    }
  }

  @Override
  void sum(LongBuffer left, int leftAt, LongBuffer right, int rightAt, long[] into, int count) {
    int length = Math.min(count, TILE_BYTES / 8);
    int leftBegin = leftAt & INDEX_MASK;
    int rightBegin = rightAt & INDEX_MASK;
    for (int i = 0; i < length; i++) {
      into[i] = left.get(leftBegin + i) + right.get(rightBegin + i);
    }
  }

  @Override
  void sum(LongBuffer left, int at, long[] into, int count) {
    int length = Math.min(count, TILE_BYTES / 8);
    int begin = at & INDEX_MASK;
    for (int i = 0; i < length; i++) {
      into[i] = left.get(begin + i) + into[i];
    }
  }

  @Override
  void prod(long[] left, long[] right, int count) {
    for (int i = 0; i < count; i++) {
      left[i] *= right[i];
    }
  }

  @Override
  void max(Tile<long[]> left, Tile<long[]> right, int count) {
    max(left.array(), right.array(), flip(), count);
  }

  private static void max(long[] left, long[] right, long flip, int count) {
    for (int i = 0; i < count; i++) {
      left[i] = Math.max(left[i] ^ flip, right[i] ^ flip) ^ flip;
    }
  }

  @Override
  void min(Tile<long[]> left, Tile<long[]> right, int count) {
    min(left.array(), right.array(), flip(), count);
  }

  private static void min(long[] left, long[] right, long flip, int count) {
    for (int i = 0; i < count; i++) {
      left[i] = Math.min(left[i] ^ flip, right[i] ^ flip) ^ flip;
    }
  }

  /** Returns the mask that maps the order of this type to that of signed integers, and back. */
  private long flip() {
    return unsigned ? Long.MIN_VALUE : 0;
  }

  @Override
  void scale(long[] tile, long factor, int count) {
    for (int i = 0; i < count; i++) {
      tile[i] = tile[i] * factor;
    }
  }

  @Override
  void divide(long[] tile, int divisor, int count) {
    if (Integer.bitCount(divisor) == 1) {
      shift(tile, Integer.numberOfTrailingZeros(divisor), count);
      return;
    }
    for (int i = 0; i < count; i++) {
      tile[i] = unsigned ? Long.divideUnsigned(tile[i], divisor) : tile[i] / divisor;
    }
  }

  /** Divides by a power of two, truncating; vector units cannot divide. */
  private void shift(long[] tile, int power, int count) {
    long below = (1L << power) - 1;
    if (unsigned) {
      for (int i = 0; i < count; i++) {
        tile[i] = tile[i] >>> power;
      }
    } else {
      for (int i = 0; i < count; i++) {
        tile[i] = (tile[i] + ((tile[i] >> 63) & below)) >> power;
      }
    }
  }
}
