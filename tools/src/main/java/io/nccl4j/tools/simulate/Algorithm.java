package io.nccl4j.tools.simulate;

import java.util.Locale;

/** The ways to reduce that are compared. */
enum Algorithm {
  /** One ring of all ranks for each channel. */
  RING,
  /** A tree of all ranks for each channel, of two kinds. */
  TREE,
  /**
   * Three operations: a reduce-scatter within each node, an all-reduce of each rank's shard across
   * the nodes, an all-gather within each node. NCCL does not choose this by itself and neither does
   * the reference; a program can, with a communicator for each.
   */
  HIERARCHICAL;

  String label() {
    return name().toLowerCase(Locale.ROOT);
  }
}
