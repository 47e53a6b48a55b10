/**
 * The trace command: reads flight recordings of one or more processes, puts them on one clock, and
 * writes what each rank's streams did as a trace for Perfetto or Chrome, as a page, and as a
 * summary.
 */
package io.nccl4j.tools.trace;
