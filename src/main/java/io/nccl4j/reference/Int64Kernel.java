package io.nccl4j.reference;

import java.lang.foreign.MemorySegment;

/** Signed and unsigned 64-bit integers. */
final class Int64Kernel extends Kernel<long[]> {
  private final boolean unsigned;

  Int64Kernel(boolean unsigned) {
    super(8, new long[TILE_BYTES / 8], new long[TILE_BYTES / 8], MemorySegment::ofArray);
    this.unsigned = unsigned;
  }

  @Override
  void sum(long[] left, long[] right, int count) {
    for (int i = 0; i < count; i++) {
      left[i] += right[i];
    }
  }

  @Override
  void prod(long[] left, long[] right, int count) {
    for (int i = 0; i < count; i++) {
      left[i] *= right[i];
    }
  }

  @Override
  void max(long[] left, long[] right, int count) {
    long flip = flip();
    for (int i = 0; i < count; i++) {
      left[i] = Math.max(left[i] ^ flip, right[i] ^ flip) ^ flip;
    }
  }

  @Override
  void min(long[] left, long[] right, int count) {
    long flip = flip();
    for (int i = 0; i < count; i++) {
      left[i] = Math.min(left[i] ^ flip, right[i] ^ flip) ^ flip;
    }
  }

  /** Returns what turns the order of this type into that of signed integers, and back. */
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
    for (int i = 0; i < count; i++) {
      tile[i] = unsigned ? Long.divideUnsigned(tile[i], divisor) : tile[i] / divisor;
    }
  }
}
