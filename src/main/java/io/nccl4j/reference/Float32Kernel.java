package io.nccl4j.reference;

import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.FloatBuffer;

/** Binary32 numbers. */
final class Float32Kernel extends BufferKernel<float[], FloatBuffer> {
  private static final int INFINITY = 0x7F800000;

  private final Ints lefts = new Ints();
  private final Ints rights = new Ints();

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
    int most = Math.min(count, TILE_BYTES / 4);
    int leftBegin = leftAt & INDEX_MASK;
    int rightBegin = rightAt & INDEX_MASK;
    for (int i = 0; i < most; i++) {
      into[i] = left.get(leftBegin + i) + right.get(rightBegin + i);
    }
  }

  @Override
  void sum(FloatBuffer left, int at, float[] into, int count) {
    int most = Math.min(count, TILE_BYTES / 4);
    int begin = at & INDEX_MASK;
    for (int i = 0; i < most; i++) {
      into[i] = left.get(begin + i) + into[i];
    }
  }

  @Override
  void prod(float[] left, float[] right, int count) {
    for (int i = 0; i < count; i++) {
      left[i] *= right[i];
    }
  }

  @Override
  void max(Tile<float[]> left, Tile<float[]> right, int count) {
    takeBits(left, right);
    FloatOrder.max(lefts.array(), rights.array(), INFINITY, count);
    giveBits(left);
  }

  @Override
  void min(Tile<float[]> left, Tile<float[]> right, int count) {
    takeBits(left, right);
    FloatOrder.min(lefts.array(), rights.array(), INFINITY, count);
    giveBits(left);
  }

  private void takeBits(Tile<float[]> left, Tile<float[]> right) {
    lefts.view().copyFrom(left.view());
    rights.view().copyFrom(right.view());
  }

  private void giveBits(Tile<float[]> left) {
    left.view().copyFrom(lefts.view());
  }

  @Override
  void scale(float[] tile, long factor, int count) {
    float by = Float.intBitsToFloat((int) factor);
    for (int i = 0; i < count; i++) {
      tile[i] *= by;
    }
  }
}
