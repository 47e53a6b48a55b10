package io.nccl4j.internal.reference.reduce;

import java.lang.foreign.MemorySegment;

/** Maximum and minimum of binary64 numbers. */
final class Float64MinMaxKernel extends MinMaxKernel<long[]> {
  private static final long INFINITY = 0x7FF0000000000000L;

  Float64MinMaxKernel() {
    super(8, new long[TILE_BYTES / 8], new long[TILE_BYTES / 8], MemorySegment::ofArray);
  }

  @Override
  void max(Tile<long[]> left, Tile<long[]> right, int count) {
    FloatTotalOrder.max(left.array(), right.array(), INFINITY, count);
  }

  @Override
  void min(Tile<long[]> left, Tile<long[]> right, int count) {
    FloatTotalOrder.min(left.array(), right.array(), INFINITY, count);
  }
}
