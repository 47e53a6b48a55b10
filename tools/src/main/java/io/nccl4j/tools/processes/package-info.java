/**
 * Starts processes on this host, for commands that run copies of themselves, and ends them with
 * this one.
 */
package io.nccl4j.tools.processes;
