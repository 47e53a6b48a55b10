package io.nccl4j.tools.simulate;

import io.nccl4j.Operation;
import io.nccl4j.schedule.Protocol;
import io.nccl4j.tools.cli.BusBandwidth;

/**
 * The estimated time of one all-reduce.
 *
 * @param algorithm the algorithm
 * @param across the algorithm across nodes if the algorithm is hierarchical, else the same
 *     algorithm
 * @param protocol NCCL's protocol
 * @param ranks the number of ranks
 * @param bytes the bytes that every rank reduces
 * @param latency the seconds for launch and hops, independent of the bandwidth
 * @param transfer the additional seconds to transfer the data
 */
record Estimate(
    Algorithm algorithm,
    Algorithm across,
    Protocol protocol,
    int ranks,
    long bytes,
    double latency,
    double transfer) {
  double seconds() {
    return latency + transfer;
  }

  /** Returns nccl-tests' algbw, in bytes per second. */
  double algbw() {
    return bytes / seconds();
  }

  /** Returns nccl-tests' busbw, in bytes per second. */
  double busbw() {
    return algbw() * BusBandwidth.factor(Operation.ALL_REDUCE.method(), ranks);
  }

  String limit() {
    return latency >= transfer ? "latency" : "bandwidth";
  }

  String label() {
    return algorithm == across ? algorithm.label() : algorithm.label() + ", " + across.label();
  }
}
