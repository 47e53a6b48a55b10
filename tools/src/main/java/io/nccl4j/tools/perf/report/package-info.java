/** Tables and charts of one or several runs of the bandwidth command, read from their JSON. */
package io.nccl4j.tools.perf.report;
