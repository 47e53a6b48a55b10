package io.nccl4j.spi;

import java.lang.foreign.MemorySegment;

/**
 * Newly allocated memory for a buffer, which takes ownership.
 *
 * @param memory the memory; a zero-length segment for memory of a CUDA device
 * @param release frees the memory; runs once, in any thread
 */
public record Allocation(MemorySegment memory, Runnable release) {}
