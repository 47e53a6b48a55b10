package io.nccl4j.internal.reference.reduce;

import java.lang.foreign.MemorySegment;

/** Binary32 numbers. */
final class Float32Kernel extends Kernel<float[]> {
  Float32Kernel() {
    super(4, float[]::new, MemorySegment::ofArray);
  }

  @Override
  void combine(ReductionOp.Kind kind, float[] left, float[] right, int count) {
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
  static float max(float left, float right) {
    return Float.isNaN(left) ? right : Float.isNaN(right) ? left : Math.max(left, right);
  }

  @Override
  void scale(float[] tile, long factor, int count) {
    float by = Float.intBitsToFloat((int) factor);
    for (int i = 0; i < count; i++) {
      tile[i] *= by;
    }
  }
}
