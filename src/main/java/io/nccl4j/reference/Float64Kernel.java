package io.nccl4j.reference;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/** Binary64 numbers. */
final class Float64Kernel extends Kernel<double[]> {
  Float64Kernel() {
    super(8, new double[TILE_BYTES / 8], new double[TILE_BYTES / 8]);
  }

  @Override
  void load(MemorySegment from, long offset, double[] tile, int count) {
    MemorySegment.copy(from, ValueLayout.JAVA_DOUBLE_UNALIGNED, offset, tile, 0, count);
  }

  @Override
  void store(double[] tile, MemorySegment to, long offset, int count) {
    MemorySegment.copy(tile, 0, to, ValueLayout.JAVA_DOUBLE_UNALIGNED, offset, count);
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
  void max(double[] left, double[] right, int count) {
    for (int i = 0; i < count; i++) {
      left[i] = max(left[i], right[i]);
    }
  }

  private static double max(double left, double right) {
    return Double.isNaN(left) ? right : Double.isNaN(right) ? left : Math.max(left, right);
  }

  @Override
  void min(double[] left, double[] right, int count) {
    for (int i = 0; i < count; i++) {
      left[i] = min(left[i], right[i]);
    }
  }

  private static double min(double left, double right) {
    return Double.isNaN(left) ? right : Double.isNaN(right) ? left : Math.min(left, right);
  }

  @Override
  void scale(double[] tile, long factor, int count) {
    double by = Double.longBitsToDouble(factor);
    for (int i = 0; i < count; i++) {
      tile[i] *= by;
    }
  }
}
