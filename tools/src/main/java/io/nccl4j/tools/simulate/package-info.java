/**
 * {@code nccl4j simulate}: predicts the time of an all-reduce on a hypothetical cluster.
 *
 * <p>A {@code Model} takes the load of each link from an {@code
 * io.nccl4j.internal.schedule.Schedule}, which the reference backend executes, the longest path
 * from a {@code Shape}, and bandwidths and latencies from a {@code Network}. {@code Crossover} and
 * {@code RankSweep} compare estimates; {@code TextReport}, {@code JsonReport} and {@code HtmlPage}
 * format them.
 */
package io.nccl4j.tools.simulate;
