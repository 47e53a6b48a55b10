/**
 * The sweep command: measures every choice of algorithm and protocol with the bandwidth command.
 * Each runs in a separate process, since NCCL reads its choice from the environment.
 */
package io.nccl4j.tools.perf.sweep;
