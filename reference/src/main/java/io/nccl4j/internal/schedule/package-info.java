/**
 * The schedule of an all-reduce: the division of the elements into channels, loops, chunks and
 * slices, and the step in which each rank receives, folds, keeps and sends each slice. This package
 * contains data and arithmetic only; it moves no elements.
 *
 * <p>The elements are divided into contiguous ranges, one for each channel ({@link
 * io.nccl4j.internal.schedule.ChannelDivision}). On a channel the ranks form a {@link
 * io.nccl4j.internal.schedule.Ring} or a {@link io.nccl4j.internal.schedule.Tree}. A <em>step</em>
 * is the work of one rank on one slice: receive, fold, keep, send.
 *
 * <p>{@link io.nccl4j.internal.schedule.RingSchedule} and {@link
 * io.nccl4j.internal.schedule.TreeSchedule} apply a {@link io.nccl4j.schedule.Layout} to a number
 * of ranks and elements. They can be walked step by step, and they compute what each rank sends
 * without a walk. The reference backend executes exactly this schedule: it uses the same {@link
 * io.nccl4j.internal.schedule.RingCursor}, rings and trees. Not exported; the tools use it.
 */
package io.nccl4j.internal.schedule;
