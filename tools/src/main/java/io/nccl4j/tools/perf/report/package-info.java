/**
 * What runs of the bandwidth command have measured, read from their JSON and shown as tables and
 * charts: one run, or several in one picture.
 */
package io.nccl4j.tools.perf.report;
