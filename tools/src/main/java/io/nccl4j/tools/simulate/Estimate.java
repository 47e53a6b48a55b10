package io.nccl4j.tools.simulate;

import io.nccl4j.schedule.Protocol;

/**
 * How long one all-reduce takes, and why.
 *
 * @param algorithm how it is reduced
 * @param across how it is reduced across nodes where the algorithm is hierarchical, else the
 *     algorithm
 * @param protocol NCCL's protocol
 * @param ranks the number of ranks
 * @param bytes what every rank reduces
 * @param latency the seconds that would pass even if data took no time: launch and hops
 * @param transfer the seconds that the data takes beyond that
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

  /** Returns bytes per second, as nccl-tests counts its algbw. */
  double algbw() {
    return bytes / seconds();
  }

  /** Returns bytes per second, as nccl-tests counts its busbw. */
  double busbw() {
    return algbw() * 2 * (ranks - 1) / ranks;
  }

  String limit() {
    return latency >= transfer ? "latency" : "bandwidth";
  }

  String label() {
    return algorithm == across ? algorithm.label() : algorithm.label() + ", " + across.label();
  }
}
