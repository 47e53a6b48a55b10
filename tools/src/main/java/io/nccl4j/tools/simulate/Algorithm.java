package io.nccl4j.tools.simulate;

import java.util.Locale;

/** The algorithms that are compared. */
enum Algorithm {
  /** One ring of all ranks for each channel. */
  RING,
  /** A tree of all ranks for each channel, in two variants. */
  TREE,
  /**
   * Three operations: a reduce-scatter within each node, an all-reduce of each rank's shard across
   * the nodes, an all-gather within each node. Neither NCCL nor the reference uses this
   * automatically; a program can do it with a communicator for each operation.
   */
  HIERARCHICAL;

  String label() {
    return name().toLowerCase(Locale.ROOT);
  }
}
