package io.nccl4j.nccl;

/**
 * The GPU memory that NCCL holds for one communicator: what {@code ncclCommMemStats} tells, from
 * NCCL 2.29.7 on.
 *
 * @param totalBytes all of it, also while it is given back; the sum of the next two
 * @param suspendableBytes what {@link NcclCommunicator#suspend} gives back
 * @param persistentBytes what it keeps
 * @param suspended whether the suspendable part is given back now
 */
public record MemoryStatistics(
    long totalBytes, long suspendableBytes, long persistentBytes, boolean suspended) {}
