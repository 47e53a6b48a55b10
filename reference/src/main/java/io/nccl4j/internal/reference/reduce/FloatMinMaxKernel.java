package io.nccl4j.internal.reference.reduce;

import io.nccl4j.DataType;
import java.lang.foreign.MemorySegment;

/** Maximum and minimum of floating-point numbers of 32 bits, or of two of 16 bits in 32. */
final class FloatMinMaxKernel extends MinMaxKernel<int[]> {
  private final DataType type;

  FloatMinMaxKernel(DataType type) {
    super(type.bytes(), new int[TILE_BYTES / 4], new int[TILE_BYTES / 4], MemorySegment::ofArray);
    this.type = type;
  }

  @Override
  void max(Tile<int[]> left, Tile<int[]> right, int count) {
    if (type == DataType.FLOAT32) {
      FloatTotalOrder.max(left.array(), right.array(), infinity(), count);
    } else {
      FloatTotalOrder.maxOfPairs(left.array(), right.array(), infinity(), (count + 1) / 2);
    }
  }

  @Override
  void min(Tile<int[]> left, Tile<int[]> right, int count) {
    if (type == DataType.FLOAT32) {
      FloatTotalOrder.min(left.array(), right.array(), infinity(), count);
    } else {
      FloatTotalOrder.minOfPairs(left.array(), right.array(), infinity(), (count + 1) / 2);
    }
  }

  /** Returns the bits of infinity; those of a 16-bit type are in the upper half. */
  private int infinity() {
    return type == DataType.FLOAT16 ? 0x7C000000 : 0x7F800000;
  }
}
