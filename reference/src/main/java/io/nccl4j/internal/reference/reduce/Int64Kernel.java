package io.nccl4j.internal.reference.reduce;

import java.lang.foreign.MemorySegment;

/** Signed and unsigned 64-bit integers. */
final class Int64Kernel extends Kernel<long[]> {
  private final boolean unsigned;

  Int64Kernel(boolean unsigned) {
    super(8, long[]::new, MemorySegment::ofArray);
    this.unsigned = unsigned;
  }

  @Override
  void combine(ReductionOp.Kind kind, long[] left, long[] right, int count) {
    // Maps the order of this type to that of signed integers, and back.
    long flip = unsigned ? Long.MIN_VALUE : 0;
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
  void scale(long[] tile, long factor, int count) {
    for (int i = 0; i < count; i++) {
      tile[i] *= factor;
    }
  }

  @Override
  void divide(long[] tile, int divisor, int count) {
    for (int i = 0; i < count; i++) {
      tile[i] = unsigned ? Long.divideUnsigned(tile[i], divisor) : tile[i] / divisor;
    }
  }
}
