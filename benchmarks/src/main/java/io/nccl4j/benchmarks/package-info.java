/**
 * What nccl4j costs, measured with JMH. {@code scripts/bench} runs these; timings of a stand-in
 * library are timings of the way there and back, never of NCCL.
 */
package io.nccl4j.benchmarks;
