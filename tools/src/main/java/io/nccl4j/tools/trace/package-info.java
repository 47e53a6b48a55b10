/**
 * {@code nccl4j trace}: reads flight recordings of one or more processes, aligns their clocks, and
 * writes the spans of each rank's streams as a trace for Perfetto or Chrome, as a page, and as a
 * summary.
 */
package io.nccl4j.tools.trace;
