package io.nccl4j.tools.simulate;

import io.nccl4j.schedule.Protocol;

/**
 * What the links are like. Bandwidths are of one rank and one direction; a rank sends and receives
 * at the same time. All ranks of a node together reach other nodes with the bandwidth of their
 * network cards, one for each rank, of which every channel uses one.
 *
 * @param intra what a rank sends to ranks of its own node, in bytes per second
 * @param inter what a rank's network card sends to other nodes, in bytes per second
 * @param interLatency how long one hop to another node takes with {@link Protocol#SIMPLE}, in
 *     seconds
 * @param intraLatency how long one hop within a node takes with {@link Protocol#SIMPLE}, in seconds
 * @param launch what it takes to start, whatever follows, in seconds
 */
record Network(
    double intra, double inter, double interLatency, double intraLatency, double launch) {
  /*
   * Microseconds of a hop of a tree in NCCL 2.30.7, src/graph/tuning.cc, hwLatencies: LL, LL128 and
   * Simple, over the network and over NVLink. The tree's, since NCCL takes them for rings too where
   * each hop goes to another node: there all of a hop's latency shows.
   */
  private static final double LL_INTER = 5.0;
  private static final double LL128_INTER = 8.5;
  private static final double SIMPLE_INTER = 14;
  private static final double LL_INTRA = 0.6;
  private static final double LL128_INTRA = 1.25;
  private static final double SIMPLE_INTRA = 4.0;

  /** The latency of a hop within a node where that of one between nodes is 1; both with Simple. */
  static final double USUAL_INTRA_LATENCY = SIMPLE_INTRA / SIMPLE_INTER;

  /** Returns how long some hops take with a protocol if nothing is sent, in seconds. */
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
