/** Ranks as processes of this host, for commands that start themselves several times. */
package io.nccl4j.tools.processes;
