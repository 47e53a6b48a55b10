/**
 * The schedule of an all-reduce: the division of the elements into channels, loops, chunks and
 * slices, and the step in which each rank receives, folds, keeps and sends each slice. This package
 * contains data and arithmetic only; it moves no elements.
 *
 * <p>The terms are NCCL's. The elements are divided into contiguous ranges, one for each
 * <em>channel</em> ({@link io.nccl4j.schedule.ChannelDivision}). On a channel the ranks form a
 * {@link io.nccl4j.schedule.Ring} or a {@link io.nccl4j.schedule.Tree}. A ring processes its range
 * in <em>loops</em> of one <em>chunk</em> per rank, a tree chunk by chunk. A <em>slice</em> is the
 * part of a chunk that is transferred at a time; its size affects timing, never results. A
 * <em>step</em> is the work of one rank on one slice: receive, fold, keep, send.
 *
 * <p>A {@link io.nccl4j.schedule.Layout} contains everything that all ranks must agree on. {@link
 * io.nccl4j.schedule.RingSchedule} and {@link io.nccl4j.schedule.TreeSchedule} apply it to a number
 * of ranks and elements. They can be walked step by step, and they compute what each rank sends
 * without a walk. The reference backend executes exactly this schedule: it uses the same {@link
 * io.nccl4j.schedule.RingCursor}, rings and trees.
 *
 * <p>The arithmetic is that of NCCL 2.30, or of 2.28 with {@link
 * io.nccl4j.schedule.Layout#withCellBytes smaller cells}, for one all-reduce that is not grouped
 * with others. Two things determine the bits of a result: the position of an element (its channel,
 * loop and chunk) and the order of the ranks at that position.
 */
package io.nccl4j.schedule;
