package io.nccl4j.tools.simulate;

/**
 * The number of ranks and their assignment to nodes, in order of rank.
 *
 * @param ranks the number of ranks, at least 1
 * @param ranksPerNode the number of ranks on a node; divides the number of ranks
 */
record Cluster(int ranks, int ranksPerNode) {
  Cluster {
    if (ranks < 1 || ranksPerNode < 1 || ranks % ranksPerNode != 0) {
      throw new IllegalArgumentException(
          ranks + " ranks do not fill nodes of " + ranksPerNode + " ranks each");
    }
  }

  int nodes() {
    return ranks / ranksPerNode;
  }

  boolean sameNode(int rank, int other) {
    return rank / ranksPerNode == other / ranksPerNode;
  }
}
