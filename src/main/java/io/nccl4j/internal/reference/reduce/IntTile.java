package io.nccl4j.internal.reference.reduce;

import java.lang.foreign.MemorySegment;

/**
 * A tile as 32-bit integers, which is how the bits of floating-point numbers are reached in bulk.
 */
final class IntTile {
  private final int[] array = new int[ArrayKernel.TILE_BYTES / Integer.BYTES];
  private final MemorySegment view = MemorySegment.ofArray(array);

  int[] array() {
    return array;
  }

  /** Returns the same memory as a segment. */
  MemorySegment view() {
    return view;
  }
}
