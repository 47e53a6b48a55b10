package io.nccl4j.internal.reference.reduce;

import java.lang.foreign.MemorySegment;

/**
 * A run of elements in an array that fits the first-level cache.
 *
 * @param <A> the array that holds elements of the type
 * @param array the elements
 * @param view the same memory as a segment
 */
record Tile<A>(A array, MemorySegment view) {}
