/**
 * {@code scripts/explain}: the steps of an all-reduce as text, and as a page that plays them.
 *
 * <p>A {@code ChannelTrace} walks through an {@code io.nccl4j.schedule.Schedule}, which is what the
 * reference backend executes, and keeps for each step what every rank holds afterwards. {@code
 * TextReport} and {@code HtmlPage} show stories; neither knows how an all-reduce works.
 */
package io.nccl4j.tools.explain;
