package io.nccl4j.reference;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/** IEEE binary16 numbers: each step computes in binary32, which has bits enough, and rounds. */
final class Float16Kernel extends Kernel<short[]> {
  Float16Kernel() {
    super(2, new short[TILE_BYTES / 2], new short[TILE_BYTES / 2]);
  }

  @Override
  void load(MemorySegment from, long offset, short[] tile, int count) {
    MemorySegment.copy(from, ValueLayout.JAVA_SHORT_UNALIGNED, offset, tile, 0, count);
  }

  @Override
  void store(short[] tile, MemorySegment to, long offset, int count) {
    MemorySegment.copy(tile, 0, to, ValueLayout.JAVA_SHORT_UNALIGNED, offset, count);
  }

  @Override
  void sum(short[] left, short[] right, int count) {
    for (int i = 0; i < count; i++) {
      left[i] =
          Float.floatToFloat16(Float.float16ToFloat(left[i]) + Float.float16ToFloat(right[i]));
    }
  }

  @Override
  void prod(short[] left, short[] right, int count) {
    for (int i = 0; i < count; i++) {
      left[i] =
          Float.floatToFloat16(Float.float16ToFloat(left[i]) * Float.float16ToFloat(right[i]));
    }
  }

  @Override
  void max(short[] left, short[] right, int count) {
    for (int i = 0; i < count; i++) {
      left[i] =
          Float.floatToFloat16(max(Float.float16ToFloat(left[i]), Float.float16ToFloat(right[i])));
    }
  }

  private static float max(float left, float right) {
    return Float.isNaN(left) ? right : Float.isNaN(right) ? left : Math.max(left, right);
  }

  @Override
  void min(short[] left, short[] right, int count) {
    for (int i = 0; i < count; i++) {
      left[i] =
          Float.floatToFloat16(min(Float.float16ToFloat(left[i]), Float.float16ToFloat(right[i])));
    }
  }

  private static float min(float left, float right) {
    return Float.isNaN(left) ? right : Float.isNaN(right) ? left : Math.min(left, right);
  }

  @Override
  void scale(short[] tile, long factor, int count) {
    float by = Float.float16ToFloat((short) factor);
    for (int i = 0; i < count; i++) {
      tile[i] = Float.floatToFloat16(Float.float16ToFloat(tile[i]) * by);
    }
  }
}
