package io.nccl4j.tools.simulate;

/**
 * How many ranks there are and where they run: node by node, in order.
 *
 * @param ranks the number of ranks; 1 or more
 * @param ranksPerNode how many of them share a node; divides the number of ranks
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
