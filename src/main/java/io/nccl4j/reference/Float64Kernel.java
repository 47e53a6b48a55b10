package io.nccl4j.reference;

import java.lang.foreign.MemorySegment;

/** Binary64 numbers. */
final class Float64Kernel extends ArrayKernel<double[]> {
  private static final long INFINITY = 0x7FF0000000000000L;

  private final Words lefts = new Words();
  private final Words rights = new Words();

  Float64Kernel() {
    super(8, new double[TILE_BYTES / 8], new double[TILE_BYTES / 8], MemorySegment::ofArray);
  }

  @Override
  void sum(double[] left, double[] right, int count) {
    for (int i = 0; i < count; i++) {
      left[i] += right[i];
    }
  }

  @Override
  void prod(double[] left, double[] right, int count) {
    for (int i = 0; i < count; i++) {
      left[i] *= right[i];
    }
  }

  @Override
  void max(Tile<double[]> left, Tile<double[]> right, int count) {
    takeBits(left, right);
    FloatOrder.max(lefts.array(), rights.array(), INFINITY, count);
    giveBits(left);
  }

  @Override
  void min(Tile<double[]> left, Tile<double[]> right, int count) {
    takeBits(left, right);
    FloatOrder.min(lefts.array(), rights.array(), INFINITY, count);
    giveBits(left);
  }

  private void takeBits(Tile<double[]> left, Tile<double[]> right) {
    lefts.view().copyFrom(left.view());
    rights.view().copyFrom(right.view());
  }

  private void giveBits(Tile<double[]> left) {
    left.view().copyFrom(lefts.view());
  }

  @Override
  void scale(double[] tile, long factor, int count) {
    double by = Double.longBitsToDouble(factor);
    for (int i = 0; i < count; i++) {
      tile[i] *= by;
    }
  }
}
