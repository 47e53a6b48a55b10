package io.nccl4j.internal.reference.reduce;

import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.FloatBuffer;

/** Binary32 numbers. */
final class Float32Kernel extends BufferKernel<float[], FloatBuffer> {
  Float32Kernel() {
    super(
        4,
        new float[TILE_BYTES / 4],
        new float[TILE_BYTES / 4],
        MemorySegment::ofArray,
        ByteBuffer::asFloatBuffer);
  }

  @Override
  void sum(float[] left, float[] right, int count) {
    for (int i = 0; i < count; i++) {
      left[i] += right[i];
    }
  }

  @Override
  void sum(FloatBuffer left, int leftAt, FloatBuffer right, int rightAt, float[] into, int count) {
    int length = Math.min(count, TILE_BYTES / 4);
    int leftBegin = leftAt & INDEX_MASK;
    int rightBegin = rightAt & INDEX_MASK;
    for (int i = 0; i < length; i++) {
      into[i] = left.get(leftBegin + i) + right.get(rightBegin + i);
    }
  }

  @Override
  void sum(FloatBuffer left, int at, float[] into, int count) {
    int length = Math.min(count, TILE_BYTES / 4);
    int begin = at & INDEX_MASK;
    for (int i = 0; i < length; i++) {
      into[i] = left.get(begin + i) + into[i];
    }
  }

  @Override
  void sum(FloatBuffer first, FloatBuffer second, int at, float[] into, int count) {
    int length = Math.min(count, TILE_BYTES / 4);
    int begin = at & INDEX_MASK;
    for (int i = 0; i < length; i++) {
      into[i] = second.get(begin + i) + (first.get(begin + i) + into[i]);
    }
  }

  @Override
  void prod(float[] left, float[] right, int count) {
    for (int i = 0; i < count; i++) {
      left[i] *= right[i];
    }
  }

  @Override
  void scale(float[] tile, long factor, int count) {
    float by = Float.intBitsToFloat((int) factor);
    for (int i = 0; i < count; i++) {
      tile[i] *= by;
    }
  }
}
