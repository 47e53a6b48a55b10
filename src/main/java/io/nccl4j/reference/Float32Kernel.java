package io.nccl4j.reference;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/** Binary32 numbers. */
final class Float32Kernel extends Kernel<float[]> {
  Float32Kernel() {
    super(4, new float[TILE_BYTES / 4], new float[TILE_BYTES / 4]);
  }

  @Override
  void load(MemorySegment from, long offset, float[] tile, int count) {
    MemorySegment.copy(from, ValueLayout.JAVA_FLOAT_UNALIGNED, offset, tile, 0, count);
  }

  @Override
  void store(float[] tile, MemorySegment to, long offset, int count) {
    MemorySegment.copy(tile, 0, to, ValueLayout.JAVA_FLOAT_UNALIGNED, offset, count);
  }

  @Override
  void sum(float[] left, float[] right, int count) {
    for (int i = 0; i < count; i++) {
      left[i] += right[i];
    }
  }

  @Override
  void prod(float[] left, float[] right, int count) {
    for (int i = 0; i < count; i++) {
      left[i] *= right[i];
    }
  }

  @Override
  void max(float[] left, float[] right, int count) {
    for (int i = 0; i < count; i++) {
      left[i] = max(left[i], right[i]);
    }
  }

  private static float max(float left, float right) {
    return Float.isNaN(left) ? right : Float.isNaN(right) ? left : Math.max(left, right);
  }

  @Override
  void min(float[] left, float[] right, int count) {
    for (int i = 0; i < count; i++) {
      left[i] = min(left[i], right[i]);
    }
  }

  private static float min(float left, float right) {
    return Float.isNaN(left) ? right : Float.isNaN(right) ? left : Math.min(left, right);
  }

  @Override
  void scale(float[] tile, long factor, int count) {
    float by = Float.intBitsToFloat((int) factor);
    for (int i = 0; i < count; i++) {
      tile[i] *= by;
    }
  }
}
