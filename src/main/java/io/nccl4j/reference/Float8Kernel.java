package io.nccl4j.reference;

import io.nccl4j.DataType;
import io.nccl4j.MiniFloat;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/**
 * 8-bit floating-point numbers of either format. Each step computes in binary16, as NCCL does, and
 * saturates back. There are so few pairs of numbers that every result is looked up.
 */
final class Float8Kernel extends Kernel<byte[]> {
  private interface Combination {
    float of(float left, float right);
  }

  private final boolean e4m3;
  private byte[] sums;
  private byte[] products;
  private byte[] maxima;
  private byte[] minima;

  Float8Kernel(DataType type) {
    super(1, new byte[TILE_BYTES], new byte[TILE_BYTES]);
    this.e4m3 = type == DataType.FLOAT8E4M3;
  }

  @Override
  void load(MemorySegment from, long offset, byte[] tile, int count) {
    MemorySegment.copy(from, ValueLayout.JAVA_BYTE, offset, tile, 0, count);
  }

  @Override
  void store(byte[] tile, MemorySegment to, long offset, int count) {
    MemorySegment.copy(tile, 0, to, ValueLayout.JAVA_BYTE, offset, count);
  }

  @Override
  void sum(byte[] left, byte[] right, int count) {
    if (sums == null) {
      sums = table((a, b) -> a + b);
    }
    lookUp(sums, left, right, count);
  }

  @Override
  void prod(byte[] left, byte[] right, int count) {
    if (products == null) {
      products = table((a, b) -> a * b);
    }
    lookUp(products, left, right, count);
  }

  @Override
  void max(byte[] left, byte[] right, int count) {
    if (maxima == null) {
      maxima = table((a, b) -> Float.isNaN(a) ? b : Float.isNaN(b) ? a : Math.max(a, b));
    }
    lookUp(maxima, left, right, count);
  }

  @Override
  void min(byte[] left, byte[] right, int count) {
    if (minima == null) {
      minima = table((a, b) -> Float.isNaN(a) ? b : Float.isNaN(b) ? a : Math.min(a, b));
    }
    lookUp(minima, left, right, count);
  }

  @Override
  void scale(byte[] tile, long factor, int count) {
    for (int i = 0; i < count; i++) {
      tile[i] = narrow(widen(tile[i]) * widen((byte) factor));
    }
  }

  private static void lookUp(byte[] results, byte[] left, byte[] right, int count) {
    for (int i = 0; i < count; i++) {
      left[i] = results[(left[i] & 0xFF) << 8 | (right[i] & 0xFF)];
    }
  }

  private byte[] table(Combination combination) {
    byte[] results = new byte[1 << 16];
    for (int pair = 0; pair < results.length; pair++) {
      results[pair] = narrow(combination.of(widen((byte) (pair >> 8)), widen((byte) pair)));
    }
    return results;
  }

  private float widen(byte bits) {
    return e4m3 ? MiniFloat.fromFloat8e4m3(bits) : MiniFloat.fromFloat8e5m2(bits);
  }

  private byte narrow(float value) {
    float half = MiniFloat.fromFloat16(MiniFloat.toFloat16(value));
    return e4m3 ? MiniFloat.toFloat8e4m3(half) : MiniFloat.toFloat8e5m2(half);
  }
}
