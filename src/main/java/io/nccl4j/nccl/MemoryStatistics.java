package io.nccl4j.nccl;

import org.jspecify.annotations.NullMarked;

/**
 * The GPU memory that NCCL uses for one communicator, as reported by {@code ncclCommMemStats}, from
 * NCCL 2.29.7 on.
 *
 * @param totalBytes the sum of the next two, also while the communicator is suspended
 * @param suspendableBytes the memory that {@link NcclCommunicator#suspend} releases
 * @param persistentBytes the memory that it does not release
 * @param suspended whether the suspendable memory is released now
 */
@NullMarked
public record MemoryStatistics(
    long totalBytes, long suspendableBytes, long persistentBytes, boolean suspended) {}
