/** Runs ranks as processes of this host, for commands that start copies of themselves. */
package io.nccl4j.tools.processes;
