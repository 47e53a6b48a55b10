/**
 * {@code nccl4j explain}: prints the steps of an all-reduce, or writes a page that animates them.
 *
 * <p>A {@code ChannelTrace} walks an {@code io.nccl4j.internal.schedule.Schedule}, which the
 * reference backend executes, and records what every rank holds after each step. {@code TextReport}
 * and {@code HtmlPage} format traces.
 */
package io.nccl4j.tools.explain;
