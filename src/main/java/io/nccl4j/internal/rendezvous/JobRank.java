package io.nccl4j.internal.rendezvous;

/**
 * A rank of a run, as used by the exchange protocols.
 *
 * @param rank from 0 to {@code size - 1}
 * @param size the number of ranks
 * @param jobId identifies the run among others that use the same endpoint; may be empty
 */
public record JobRank(int rank, int size, String jobId) {}
