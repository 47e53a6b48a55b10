package io.nccl4j.internal.reference.reduce;

import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.DoubleBuffer;

/** Binary64 numbers. */
final class Float64Kernel extends BufferKernel<double[], DoubleBuffer> {
  Float64Kernel() {
    super(
        8,
        new double[TILE_BYTES / 8],
        new double[TILE_BYTES / 8],
        MemorySegment::ofArray,
        ByteBuffer::asDoubleBuffer);
  }

  @Override
  void sum(double[] left, double[] right, int count) {
    for (int i = 0; i < count; i++) {
      left[i] += right[i];
    }
  }

  @Override
  void sum(
      DoubleBuffer left, int leftAt, DoubleBuffer right, int rightAt, double[] into, int count) {
    int length = Math.min(count, TILE_BYTES / 8);
    int leftBegin = leftAt & INDEX_MASK;
    int rightBegin = rightAt & INDEX_MASK;
    for (int i = 0; i < length; i++) {
      into[i] = left.get(leftBegin + i) + right.get(rightBegin + i);
    }
  }

  @Override
  void sum(DoubleBuffer left, int at, double[] into, int count) {
    int length = Math.min(count, TILE_BYTES / 8);
    int begin = at & INDEX_MASK;
    for (int i = 0; i < length; i++) {
      into[i] = left.get(begin + i) + into[i];
    }
  }

  @Override
  void prod(double[] left, double[] right, int count) {
    for (int i = 0; i < count; i++) {
      left[i] *= right[i];
    }
  }

  @Override
  void scale(double[] tile, long factor, int count) {
    double by = Double.longBitsToDouble(factor);
    for (int i = 0; i < count; i++) {
      tile[i] *= by;
    }
  }
}
