package io.nccl4j.internal.reference.rank;

import io.nccl4j.internal.reference.collective.AllReduceAlgorithm;
import io.nccl4j.schedule.Layout;

/**
 * The options of the ranks of a communicator.
 *
 * @param algorithm the algorithm of every all-reduce, or null to choose one for each call
 * @param layout how data is divided, and the order of ranks in rings and trees
 * @param sharesMemory whether processes of one host use shared memory rather than TCP
 * @param text the options that must be equal on all ranks, for comparison and messages
 */
public record RankOptions(
    AllReduceAlgorithm algorithm, Layout layout, boolean sharesMemory, String text) {}
