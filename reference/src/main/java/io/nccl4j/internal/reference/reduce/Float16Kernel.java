package io.nccl4j.internal.reference.reduce;

import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.ShortBuffer;

/** IEEE binary16 numbers. Each step computes in binary32, which is precise enough, and rounds. */
final class Float16Kernel extends BufferKernel<short[], ShortBuffer> {
  Float16Kernel() {
    super(
        2,
        new short[TILE_BYTES / 2],
        new short[TILE_BYTES / 2],
        MemorySegment::ofArray,
        ByteBuffer::asShortBuffer);
  }

  @Override
  boolean slow(boolean scales) {
    return scales;
  }

  @Override
  void sum(short[] left, short[] right, int count) {
    for (int i = 0; i < count; i++) {
      left[i] =
          Float.floatToFloat16(Float.float16ToFloat(left[i]) + Float.float16ToFloat(right[i]));
    }
  }

  @Override
  void sum(ShortBuffer left, int leftAt, ShortBuffer right, int rightAt, short[] into, int count) {
    int length = Math.min(count, TILE_BYTES / 2);
    int leftBegin = leftAt & INDEX_MASK;
    int rightBegin = rightAt & INDEX_MASK;
    for (int i = 0; i < length; i++) {
      into[i] =
          Float.floatToFloat16(
              Float.float16ToFloat(left.get(leftBegin + i))
                  + Float.float16ToFloat(right.get(rightBegin + i)));
    }
  }

  @Override
  void sum(ShortBuffer left, int at, short[] into, int count) {
    int length = Math.min(count, TILE_BYTES / 2);
    int begin = at & INDEX_MASK;
    for (int i = 0; i < length; i++) {
      into[i] =
          Float.floatToFloat16(
              Float.float16ToFloat(left.get(begin + i)) + Float.float16ToFloat(into[i]));
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
  void scale(short[] tile, long factor, int count) {
    float by = Float.float16ToFloat((short) factor);
    for (int i = 0; i < count; i++) {
      tile[i] = Float.floatToFloat16(Float.float16ToFloat(tile[i]) * by);
    }
  }
}
