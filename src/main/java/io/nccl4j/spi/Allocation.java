package io.nccl4j.spi;

import java.lang.foreign.MemorySegment;

/**
 * New memory for a buffer, which owns it.
 *
 * @param memory where it is; memory of a CUDA device has an address and no size
 * @param release frees it; runs once, in any thread
 */
public record Allocation(MemorySegment memory, Runnable release) {}
