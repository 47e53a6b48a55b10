/**
 * What determines the order of the additions in an all-reduce, besides the algorithm: its division
 * into channels, chunks and slices, and the order of the ranks in rings and trees. The terms are
 * NCCL's.
 *
 * <p>A {@link io.nccl4j.schedule.Layout} contains everything that all ranks must agree on; {@link
 * io.nccl4j.reference.ReferenceOptions} takes one. The elements are divided into contiguous ranges,
 * one for each <em>channel</em>. On a channel the ranks form a ring or a tree. A ring processes its
 * range in loops of one <em>chunk</em> per rank, a tree chunk by chunk. A <em>slice</em> is the
 * part of a chunk that is transferred at a time; its size affects timing, never results.
 *
 * <p>The arithmetic is that of NCCL 2.30, or of 2.28 with {@link
 * io.nccl4j.schedule.Layout#withCellBytes smaller cells}, for one all-reduce that is not grouped
 * with others. Two things determine the bits of a result: the position of an element (its channel,
 * loop and chunk) and the order of the ranks at that position.
 */
package io.nccl4j.schedule;
