/**
 * Every choice of algorithm and protocol, measured one after the other by the bandwidth command in
 * a process of its own, since NCCL reads its choice from the environment.
 */
package io.nccl4j.tools.perf.sweep;
