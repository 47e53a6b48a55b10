package io.nccl4j.reference;

import java.lang.foreign.MemorySegment;

/** Binary32 numbers. */
final class Float32Kernel extends ArrayKernel<float[]> {
  private static final int INFINITY = 0x7F800000;

  private final Ints lefts = new Ints();
  private final Ints rights = new Ints();

  Float32Kernel() {
    super(4, new float[TILE_BYTES / 4], new float[TILE_BYTES / 4], MemorySegment::ofArray);
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
