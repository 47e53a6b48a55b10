package io.nccl4j.internal.rendezvous;

/**
 * A rank that takes part in exchanges.
 *
 * @param rank from 0 to {@code size - 1}
 * @param size how many ranks there are
 * @param run what tells the run from others in the same place; may be empty
 */
public record JobRank(int rank, int size, String jobId) {}
