/**
 * The sweep command: measures every choice of algorithm and protocol with the bandwidth command.
 * Each runs in a separate process, so that one that hangs or fails does not end the others.
 */
package io.nccl4j.tools.perf.sweep;
