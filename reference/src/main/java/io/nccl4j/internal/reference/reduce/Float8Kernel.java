package io.nccl4j.internal.reference.reduce;

import io.nccl4j.DataType;
import io.nccl4j.internal.util.LowPrecision;
import java.lang.foreign.MemorySegment;
import java.util.concurrent.atomic.AtomicReferenceArray;

/**
 * 8-bit floating-point numbers of either format. Each step computes in binary16, as NCCL does, and
 * narrows with saturation. The results of all pairs are looked up in a table for each operator.
 */
final class Float8Kernel extends ArrayKernel<byte[]> {
  private static final int VALUES = 256;
  private static final byte NAN = 0x7F;
  private static final int KINDS = ReductionOp.Kind.values().length;

  /** By format and operator, filled on first use; two threads may fill the same one twice. */
  private static final AtomicReferenceArray<byte[]> RESULTS = new AtomicReferenceArray<>(2 * KINDS);

  private final boolean e4m3;
  private byte[] multiples;
  private byte multiplesOf;

  Float8Kernel(DataType type) {
    super(1, new byte[TILE_BYTES], new byte[TILE_BYTES], MemorySegment::ofArray);
    this.e4m3 = type == DataType.FLOAT8E4M3;
  }

  @Override
  boolean slow(boolean scales) {
    return true;
  }

  @Override
  void sum(byte[] left, byte[] right, int count) {
    combine(ReductionOp.Kind.SUM, left, right, count);
  }

  @Override
  void prod(byte[] left, byte[] right, int count) {
    combine(ReductionOp.Kind.PROD, left, right, count);
  }

  @Override
  void max(Tile<byte[]> left, Tile<byte[]> right, int count) {
    combine(ReductionOp.Kind.MAX, left.array(), right.array(), count);
  }

  @Override
  void min(Tile<byte[]> left, Tile<byte[]> right, int count) {
    combine(ReductionOp.Kind.MIN, left.array(), right.array(), count);
  }

  private void combine(ReductionOp.Kind kind, byte[] left, byte[] right, int count) {
    byte[] results = results(kind);
    for (int i = 0; i < count; i++) {
      left[i] = results[((left[i] & 0xFF) << 8) | (right[i] & 0xFF)];
    }
  }

  private byte[] results(ReductionOp.Kind kind) {
    int index = (e4m3 ? 0 : KINDS) + kind.code();
    byte[] results = RESULTS.get(index);
    if (results == null) {
      results = new byte[VALUES * VALUES];
      for (int pair = 0; pair < results.length; pair++) {
        results[pair] = result(kind, widen((byte) (pair >>> 8)), widen((byte) pair));
      }
      RESULTS.set(index, results);
    }
    return results;
  }

  private byte result(ReductionOp.Kind kind, float left, float right) {
    return switch (kind) {
      case SUM -> number(left + right);
      case PROD -> number(left * right);
      case MIN -> number(smaller(left, right));
      // The maximum of two NaNs has the bits of the minimum with the opposite sign, as in
      // FloatTotalOrder.
      default -> (byte) (number(smaller(-left, -right)) ^ 0x80);
    };
  }

  /** Returns the smaller number; ignores a NaN unless both are NaN. */
  private static float smaller(float left, float right) {
    return Float.isNaN(left) ? right : Float.isNaN(right) ? left : Math.min(left, right);
  }

  /** Narrows a result; the sign of a NaN that the processor computes is undefined. */
  private byte number(float value) {
    return Float.isNaN(value) ? NAN : narrow(value);
  }

  @Override
  void scale(byte[] tile, long factor, int count) {
    byte by = (byte) factor;
    if (by != multiplesOf || multiples == null) {
      multiples = new byte[VALUES];
      for (int value = 0; value < VALUES; value++) {
        multiples[value] = narrow(widen((byte) value) * widen(by));
      }
      multiplesOf = by;
    }
    byte[] results = multiples;
    for (int i = 0; i < count; i++) {
      tile[i] = results[tile[i] & 0xFF];
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
