package io.nccl4j.internal.reference.reduce;

import java.lang.foreign.MemorySegment;

/** A tile of 64-bit words: the bits of binary64 numbers, or eight bytes each. */
final class LongTile {
  private final long[] array = new long[ArrayKernel.TILE_BYTES / Long.BYTES];
  private final MemorySegment view = MemorySegment.ofArray(array);

  long[] array() {
    return array;
  }

  /** Returns the same memory as a segment. */
  MemorySegment view() {
    return view;
  }
}
