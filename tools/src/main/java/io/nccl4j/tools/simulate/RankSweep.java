package io.nccl4j.tools.simulate;

import java.util.ArrayList;
import java.util.List;

/**
 * The same network with increasing numbers of ranks: powers of two within one node, then one node,
 * two nodes, four and so on, and finally as many full nodes as the limit allows.
 *
 * @param models a model for each number of ranks
 */
record RankSweep(List<Model> models) {
  /** The sizes that are compared, in bytes. */
  static final List<Long> SIZES =
      List.of(1L << 10, 64L << 10, 1L << 20, 16L << 20, 256L << 20, 1L << 30);

  static RankSweep upTo(int most, int ranksPerNode, Network network, int channels) {
    List<Model> models = new ArrayList<>();
    for (int ranks = 2; ranks < ranksPerNode && ranks <= most; ranks *= 2) {
      models.add(new Model(new Cluster(ranks, ranks), network, channels));
    }
    long last = most / ranksPerNode * (long) ranksPerNode;
    for (long ranks = ranksPerNode; ranks < last; ranks *= 2) {
      if (ranks > 1) {
        models.add(new Model(new Cluster((int) ranks, ranksPerNode), network, channels));
      }
    }
    if (last > 1) {
      models.add(new Model(new Cluster((int) last, ranksPerNode), network, channels));
    }
    return new RankSweep(models);
  }
}
