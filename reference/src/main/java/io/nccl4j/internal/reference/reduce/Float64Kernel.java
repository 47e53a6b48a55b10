package io.nccl4j.internal.reference.reduce;

import java.lang.foreign.MemorySegment;

/** Binary64 numbers. */
final class Float64Kernel extends Kernel<double[]> {
  Float64Kernel() {
    super(8, double[]::new, MemorySegment::ofArray);
  }

  @Override
  void combine(ReductionOp.Kind kind, double[] left, double[] right, int count) {
    switch (kind) {
      case SUM -> {
        for (int i = 0; i < count; i++) {
          left[i] += right[i];
        }
      }
      case PROD -> {
        for (int i = 0; i < count; i++) {
          left[i] *= right[i];
        }
      }
      case MAX -> {
        for (int i = 0; i < count; i++) {
          left[i] = max(left[i], right[i]);
        }
      }
      default -> {
        for (int i = 0; i < count; i++) {
          left[i] = -max(-left[i], -right[i]);
        }
      }
    }
  }

  /** Returns the larger number; ignores a NaN unless both are NaN. */
  private static double max(double left, double right) {
    return Double.isNaN(left) ? right : Double.isNaN(right) ? left : Math.max(left, right);
  }

  @Override
  void scale(double[] tile, long factor, int count) {
    double by = Double.longBitsToDouble(factor);
    for (int i = 0; i < count; i++) {
      tile[i] *= by;
    }
  }
}
