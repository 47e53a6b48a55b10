package io.nccl4j.internal.reference.reduce;

import java.lang.foreign.MemorySegment;

/** A tile of 32-bit integers, which gives bulk access to the bits of floating-point numbers. */
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
