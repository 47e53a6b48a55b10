package io.nccl4j.internal.reference.reduce;

import java.lang.foreign.MemorySegment;

/** IEEE binary16 numbers. Each step computes in binary32, which is precise enough, and rounds. */
final class Float16Kernel extends Kernel<short[]> {
  Float16Kernel() {
    super(2, short[]::new, MemorySegment::ofArray);
  }

  @Override
  void combine(ReductionOp.Kind kind, short[] left, short[] right, int count) {
    switch (kind) {
      case SUM -> {
        for (int i = 0; i < count; i++) {
          left[i] =
              Float.floatToFloat16(Float.float16ToFloat(left[i]) + Float.float16ToFloat(right[i]));
        }
      }
      case PROD -> {
        for (int i = 0; i < count; i++) {
          left[i] =
              Float.floatToFloat16(Float.float16ToFloat(left[i]) * Float.float16ToFloat(right[i]));
        }
      }
      case MAX -> {
        for (int i = 0; i < count; i++) {
          left[i] =
              Float.floatToFloat16(
                  Float32Kernel.max(Float.float16ToFloat(left[i]), Float.float16ToFloat(right[i])));
        }
      }
      default -> {
        for (int i = 0; i < count; i++) {
          left[i] =
              Float.floatToFloat16(
                  -Float32Kernel.max(
                      -Float.float16ToFloat(left[i]), -Float.float16ToFloat(right[i])));
        }
      }
    }
  }

  @Override
  void scale(short[] tile, long factor, int count) {
    float by = Float.float16ToFloat((short) factor);
    for (int i = 0; i < count; i++) {
      tile[i] = Float.floatToFloat16(Float.float16ToFloat(tile[i]) * by);
    }
  }
}
