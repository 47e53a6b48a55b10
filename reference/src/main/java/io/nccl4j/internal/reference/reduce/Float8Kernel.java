package io.nccl4j.internal.reference.reduce;

import io.nccl4j.DataType;
import io.nccl4j.internal.util.LowPrecision;
import java.lang.foreign.MemorySegment;

/**
 * 8-bit floating-point numbers of either format. Each step computes in binary16, as NCCL does, and
 * narrows with saturation.
 */
final class Float8Kernel extends Kernel<byte[]> {
  private static final byte NAN = 0x7F;

  private final boolean e4m3;

  Float8Kernel(DataType type) {
    super(1, byte[]::new, MemorySegment::ofArray);
    this.e4m3 = type == DataType.FLOAT8E4M3;
  }

  @Override
  void combine(ReductionOp.Kind kind, byte[] left, byte[] right, int count) {
    for (int i = 0; i < count; i++) {
      left[i] = combine(kind, widen(left[i]), widen(right[i]));
    }
  }

  private byte combine(ReductionOp.Kind kind, float left, float right) {
    float result =
        switch (kind) {
          case SUM -> left + right;
          case PROD -> left * right;
          case MAX -> Float32Kernel.max(left, right);
          default -> -Float32Kernel.max(-left, -right);
        };
    // The sign of a NaN that the processor computes is undefined.
    return Float.isNaN(result) ? NAN : narrow(result);
  }

  @Override
  void scale(byte[] tile, long factor, int count) {
    float by = widen((byte) factor);
    for (int i = 0; i < count; i++) {
      tile[i] = narrow(widen(tile[i]) * by);
    }
  }

  private float widen(byte bits) {
    return e4m3 ? LowPrecision.fromFloat8e4m3(bits) : LowPrecision.fromFloat8e5m2(bits);
  }

  private byte narrow(float value) {
    float half = LowPrecision.fromFloat16(LowPrecision.toFloat16(value));
    return e4m3 ? LowPrecision.toFloat8e4m3(half) : LowPrecision.toFloat8e5m2(half);
  }
}
