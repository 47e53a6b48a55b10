package io.nccl4j.reference;

import io.nccl4j.MiniFloat;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/** Bfloat16 numbers: each step computes in binary32, which has bits enough, and rounds. */
final class Bfloat16Kernel extends Kernel<short[]> {
  Bfloat16Kernel() {
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
          MiniFloat.toBfloat16(MiniFloat.fromBfloat16(left[i]) + MiniFloat.fromBfloat16(right[i]));
    }
  }

  @Override
  void prod(short[] left, short[] right, int count) {
    for (int i = 0; i < count; i++) {
      left[i] =
          MiniFloat.toBfloat16(MiniFloat.fromBfloat16(left[i]) * MiniFloat.fromBfloat16(right[i]));
    }
  }

  @Override
  void max(short[] left, short[] right, int count) {
    for (int i = 0; i < count; i++) {
      left[i] =
          MiniFloat.toBfloat16(
              max(MiniFloat.fromBfloat16(left[i]), MiniFloat.fromBfloat16(right[i])));
    }
  }

  private static float max(float left, float right) {
    return Float.isNaN(left) ? right : Float.isNaN(right) ? left : Math.max(left, right);
  }

  @Override
  void min(short[] left, short[] right, int count) {
    for (int i = 0; i < count; i++) {
      left[i] =
          MiniFloat.toBfloat16(
              min(MiniFloat.fromBfloat16(left[i]), MiniFloat.fromBfloat16(right[i])));
    }
  }

  private static float min(float left, float right) {
    return Float.isNaN(left) ? right : Float.isNaN(right) ? left : Math.min(left, right);
  }

  @Override
  void scale(short[] tile, long factor, int count) {
    float by = MiniFloat.fromBfloat16((short) factor);
    for (int i = 0; i < count; i++) {
      tile[i] = MiniFloat.toBfloat16(MiniFloat.fromBfloat16(tile[i]) * by);
    }
  }
}
