package io.nccl4j.reference;

import java.lang.foreign.MemorySegment;

/** Binary32 numbers. */
final class Float32Kernel extends Kernel<float[]> {
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
  void max(float[] left, float[] right, int count) {
    takeBits();
    FloatOrder.max(lefts.array(), rights.array(), INFINITY, count);
    giveBits();
  }

  @Override
  void min(float[] left, float[] right, int count) {
    takeBits();
    FloatOrder.min(lefts.array(), rights.array(), INFINITY, count);
    giveBits();
  }

  private void takeBits() {
    lefts.view().copyFrom(ownView());
    rights.view().copyFrom(otherView());
  }

  private void giveBits() {
    ownView().copyFrom(lefts.view());
  }

  @Override
  void scale(float[] tile, long factor, int count) {
    float by = Float.intBitsToFloat((int) factor);
    for (int i = 0; i < count; i++) {
      tile[i] *= by;
    }
  }
}
