package io.nccl4j.internal.reference.reduce;

import java.lang.foreign.MemorySegment;

/**
 * A range of elements in an array that fits in the first-level cache.
 *
 * @param <A> the type of the array of elements
 * @param array the elements
 * @param view the same memory as a segment
 */
record Tile<A>(A array, MemorySegment view) {}
