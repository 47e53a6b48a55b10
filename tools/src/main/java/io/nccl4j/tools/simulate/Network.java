package io.nccl4j.tools.simulate;

import io.nccl4j.schedule.Protocol;

/**
 * The bandwidths and latencies of a cluster. Bandwidths are per rank and direction; a rank sends
 * and receives at the same time. A node has one network card for each rank, and each channel uses
 * one of them.
 *
 * @param intra the bandwidth of a rank to ranks of its own node, in bytes per second
 * @param inter the bandwidth of a network card to other nodes, in bytes per second
 * @param interLatency the latency of a hop to another node with {@link Protocol#SIMPLE}, in seconds
 * @param intraLatency the latency of a hop within a node with {@link Protocol#SIMPLE}, in seconds
 * @param launch the time to start an operation, in seconds
 */
record Network(
    double intra, double inter, double interLatency, double intraLatency, double launch) {
  /*
   * Microseconds per hop of a tree in NCCL 2.30.7, src/graph/tuning.cc, hwLatencies: LL, LL128 and
   * Simple, over the network and over NVLink. NCCL uses these for rings too if each hop goes to
   * another node, where the full latency of a hop shows.
   */
  private static final double LL_INTER = 5.0;
  private static final double LL128_INTER = 8.5;
  private static final double SIMPLE_INTER = 14;
  private static final double LL_INTRA = 0.6;
  private static final double LL128_INTRA = 1.25;
  private static final double SIMPLE_INTRA = 4.0;

  /** The ratio of the latency of a hop within a node to that between nodes, both with Simple. */
  static final double DEFAULT_INTRA_LATENCY = SIMPLE_INTRA / SIMPLE_INTER;

  /** Returns the latency of some hops with a protocol, in seconds. */
  double latency(Hops hops, Protocol protocol) {
    return hops.inter() * interLatency * relativeInter(protocol)
        + hops.intra() * intraLatency * relativeIntra(protocol);
  }

  private static double relativeInter(Protocol protocol) {
    return switch (protocol) {
      case LL -> LL_INTER / SIMPLE_INTER;
      case LL128 -> LL128_INTER / SIMPLE_INTER;
      case SIMPLE -> 1;
    };
  }

  private static double relativeIntra(Protocol protocol) {
    return switch (protocol) {
      case LL -> LL_INTRA / SIMPLE_INTRA;
      case LL128 -> LL128_INTRA / SIMPLE_INTRA;
      case SIMPLE -> 1;
    };
  }
}
