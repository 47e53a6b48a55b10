package io.nccl4j.tools.simulate;

import java.util.ArrayList;
import java.util.List;
import java.util.stream.LongStream;

/**
 * The simulation that a command line describes.
 *
 * @param model the cluster and its network
 * @param network the network
 * @param channels the number of channels
 * @param size the bytes that every rank reduces, or null for all sizes
 * @param sweep other numbers of ranks, or null
 */
record Scenario(Model model, Network network, int channels, Long size, RankSweep sweep) {
  /** The ratio of the sizes of consecutive rows of a table. */
  private static final int STEP = 4;

  private static final long FIRST_SIZE = 1 << 10;
  private static final long LAST_SIZE = 16L << 30;

  /**
   * Creates the scenario.
   *
   * @throws IllegalArgumentException if the options cannot be combined
   */
  static Scenario of(Flags flags) {
    if (flags.ranks % flags.nodes != 0) {
      throw new IllegalArgumentException(
          "--nodes %d does not divide --ranks %d; all nodes must have the same number of ranks"
              .formatted(flags.nodes, flags.ranks));
    }
    if (flags.size != null
        && (flags.size <= 0
            || flags.size % Model.ELEMENT_BYTES != 0
            || flags.size > Crossover.MAX_BYTES)) {
      throw new IllegalArgumentException(
          "--size is %d; it must be a multiple of 4 bytes, the size of a float32, up to 64G"
              .formatted(flags.size));
    }
    Network network =
        new Network(
            flags.intra.bytesPerSecond(),
            flags.inter.bytesPerSecond(),
            flags.latency.seconds(),
            flags.intraLatency == null
                ? flags.latency.seconds() * Network.DEFAULT_INTRA_LATENCY
                : flags.intraLatency.seconds(),
            flags.launch.seconds());
    int ranksPerNode = flags.ranks / flags.nodes;
    if (flags.sweepRanks != null && flags.sweepRanks < ranksPerNode) {
      throw new IllegalArgumentException(
          "--sweep-ranks %d is less than the %d ranks of a node"
              .formatted(flags.sweepRanks, ranksPerNode));
    }
    return new Scenario(
        new Model(new Cluster(flags.ranks, ranksPerNode), network, flags.channels),
        network,
        flags.channels,
        flags.size,
        flags.sweepRanks == null
            ? null
            : RankSweep.upTo(flags.sweepRanks, ranksPerNode, network, flags.channels));
  }

  /** Returns the sizes of a table, in bytes. */
  static List<Long> sizes() {
    return LongStream.iterate(FIRST_SIZE, size -> size <= LAST_SIZE, size -> size * STEP)
        .boxed()
        .toList();
  }

  /** Returns the crossovers of all pairs of algorithms. */
  List<Crossover> crossovers() {
    List<Crossover> all = new ArrayList<>();
    pairs().forEach(pair -> all.addAll(pair.crossovers(model)));
    return all;
  }

  /** Two algorithms. */
  record Pair(Algorithm one, Algorithm other) {
    List<Crossover> crossovers(Model model) {
      return Crossover.between(model, one, other);
    }

    /** Returns the one that is faster at the smallest size. */
    Algorithm first(Model model) {
      return Crossover.faster(model, one, other, Crossover.MIN_BYTES) ? one : other;
    }
  }

  List<Pair> pairs() {
    List<Algorithm> algorithms = model.algorithms();
    List<Pair> pairs = new ArrayList<>();
    for (int i = 0; i < algorithms.size(); i++) {
      for (Algorithm other : algorithms.subList(i + 1, algorithms.size())) {
        pairs.add(new Pair(algorithms.get(i), other));
      }
    }
    return pairs;
  }
}
