package io.nccl4j.internal.reference.reduce;

import java.lang.foreign.MemorySegment;

/** Signed and unsigned 8-bit integers. */
final class Int8Kernel extends Kernel<byte[]> {
  private final boolean unsigned;

  Int8Kernel(boolean unsigned) {
    super(1, byte[]::new, MemorySegment::ofArray);
    this.unsigned = unsigned;
  }

  @Override
  void combine(ReductionOp.Kind kind, byte[] left, byte[] right, int count) {
    // Maps the order of this type to that of signed integers, and back.
    int flip = unsigned ? Byte.MIN_VALUE : 0;
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
          left[i] = (byte) (Math.max(left[i] ^ flip, right[i] ^ flip) ^ flip);
        }
      }
      default -> {
        for (int i = 0; i < count; i++) {
          left[i] = (byte) (Math.min(left[i] ^ flip, right[i] ^ flip) ^ flip);
        }
      }
    }
  }

  @Override
  void scale(byte[] tile, long factor, int count) {
    byte by = (byte) factor;
    for (int i = 0; i < count; i++) {
      tile[i] *= by;
    }
  }

  @Override
  void divide(byte[] tile, int divisor, int count) {
    double by = divisor;
    for (int i = 0; i < count; i++) {
      tile[i] = (byte) ((unsigned ? tile[i] & 0xFF : tile[i]) / by);
    }
  }
}
