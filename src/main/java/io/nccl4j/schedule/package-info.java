/**
 * How an all-reduce is carried out: which elements go on which channel, in which loops, chunks and
 * slices, and which rank receives, folds, keeps and sends which of them in which step. Data and
 * arithmetic only; nothing here moves an element.
 *
 * <p>The words are NCCL's. The elements are divided into contiguous ranges, one for each
 * <em>channel</em> ({@link io.nccl4j.schedule.ChannelDivision}). On a channel the ranks form a
 * {@link io.nccl4j.schedule.Ring} or a {@link io.nccl4j.schedule.Tree}. A ring takes its range in
 * <em>loops</em> of one <em>chunk</em> for each rank, a tree chunk after chunk. A <em>slice</em> is
 * how much of a chunk is handed over at a time: it changes when something happens, never what. A
 * <em>step</em> is what one rank does to one slice: receive, fold, keep, send.
 *
 * <p>A {@link io.nccl4j.schedule.Layout} has everything that all ranks must agree on, {@link
 * io.nccl4j.schedule.RingSchedule} and {@link io.nccl4j.schedule.TreeSchedule} apply it to a number
 * of ranks and elements. They can be walked step by step, and they tell what each rank sends
 * without a walk. The reference backend executes exactly this: it moves along a {@link
 * io.nccl4j.schedule.RingCursor} and asks the same rings and trees who its neighbours are.
 *
 * <p>The arithmetic is that of NCCL 2.30 for one all-reduce that is not grouped with others. Two
 * things decide a result's bits: the place of an element (its channel, loop and chunk) and the
 * order of the ranks there.
 */
package io.nccl4j.schedule;
