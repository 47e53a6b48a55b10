package io.nccl4j.internal.reference.reduce;

import java.lang.foreign.MemorySegment;

/** Signed and unsigned 32-bit integers. */
final class Int32Kernel extends Kernel<int[]> {
  private final boolean unsigned;

  Int32Kernel(boolean unsigned) {
    super(4, int[]::new, MemorySegment::ofArray);
    this.unsigned = unsigned;
  }

  @Override
  void combine(ReductionOp.Kind kind, int[] left, int[] right, int count) {
    // Maps the order of this type to that of signed integers, and back.
    int flip = unsigned ? Integer.MIN_VALUE : 0;
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
          left[i] = Math.max(left[i] ^ flip, right[i] ^ flip) ^ flip;
        }
      }
      default -> {
        for (int i = 0; i < count; i++) {
          left[i] = Math.min(left[i] ^ flip, right[i] ^ flip) ^ flip;
        }
      }
    }
  }

  @Override
  void scale(int[] tile, long factor, int count) {
    int by = (int) factor;
    for (int i = 0; i < count; i++) {
      tile[i] *= by;
    }
  }

  @Override
  void divide(int[] tile, int divisor, int count) {
    if (unsigned) {
      for (int i = 0; i < count; i++) {
        tile[i] = Integer.divideUnsigned(tile[i], divisor);
      }
    } else {
      // A quotient of doubles is exact enough, and vector units cannot divide integers.
      double by = divisor;
      for (int i = 0; i < count; i++) {
        tile[i] = (int) (tile[i] / by);
      }
    }
  }
}
