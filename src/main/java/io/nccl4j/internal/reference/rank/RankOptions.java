package io.nccl4j.internal.reference.rank;

import io.nccl4j.internal.reference.collective.AllReduceAlgorithm;
import io.nccl4j.schedule.Layout;

/**
 * What the ranks of a communicator do their work with.
 *
 * @param algorithm how every all-reduce is carried out, or null where that is chosen for each
 * @param layout how data is divided and rings and trees lie
 * @param sharesMemory whether processes of one host share memory, rather than use TCP
 * @param text what all ranks must have in common, for messages
 */
public record RankOptions(
    AllReduceAlgorithm algorithm, Layout layout, boolean sharesMemory, String text) {}
