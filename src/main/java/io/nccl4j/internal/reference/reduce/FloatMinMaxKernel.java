package io.nccl4j.internal.reference.reduce;

import io.nccl4j.DataType;
import java.lang.foreign.MemorySegment;

/** Maximum and minimum of floating-point numbers of 32 bits, or of several narrower ones in 32. */
final class FloatMinMaxKernel extends MinMaxKernel<int[]> {
  private final DataType type;

  FloatMinMaxKernel(DataType type) {
    super(type.bytes(), new int[TILE_BYTES / 4], new int[TILE_BYTES / 4], MemorySegment::ofArray);
    this.type = type;
  }

  @Override
  void max(Tile<int[]> left, Tile<int[]> right, int count) {
    int words = words(count);
    switch (type) {
      case FLOAT32 -> FloatTotalOrder.max(left.array(), right.array(), infinity(), words);
      case FLOAT8E4M3, FLOAT8E5M2 ->
          FloatTotalOrder.maxOfFours(left.array(), right.array(), e4m3(), words);
      default -> FloatTotalOrder.maxOfPairs(left.array(), right.array(), infinity(), words);
    }
  }

  @Override
  void min(Tile<int[]> left, Tile<int[]> right, int count) {
    int words = words(count);
    switch (type) {
      case FLOAT32 -> FloatTotalOrder.min(left.array(), right.array(), infinity(), words);
      case FLOAT8E4M3, FLOAT8E5M2 ->
          FloatTotalOrder.minOfFours(left.array(), right.array(), e4m3(), words);
      default -> FloatTotalOrder.minOfPairs(left.array(), right.array(), infinity(), words);
    }
  }

  private int words(int count) {
    return (count * elementBytes() + Integer.BYTES - 1) / Integer.BYTES;
  }

  private boolean e4m3() {
    return type == DataType.FLOAT8E4M3;
  }

  /** Returns the bits of infinity; those of a 16-bit type are in the upper half. */
  private int infinity() {
    return type == DataType.FLOAT16 ? 0x7C000000 : 0x7F800000;
  }
}
