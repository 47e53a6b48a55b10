package io.nccl4j.schedule;

/**
 * How the tree between nodes is tied to the chain of ranks inside a node. The first rank of the
 * chain always speaks to the parent node; the patterns differ in who speaks to the child nodes.
 * NCCL picks one when it looks at the machine, and says the outcome in its log ({@code
 * NCCL_DEBUG=INFO}, lines with {@code Trees}).
 */
public enum TreePattern {
  /** The first rank speaks to both child nodes. It is what nodes of one rank have. */
  TREE(0, 0),
  /** The second rank speaks to the first child node, the first rank to the second one. */
  BALANCED_TREE(1, 0),
  /** The second rank speaks to both child nodes. */
  SPLIT_TREE(1, 1);

  private final int firstChildPlace;
  private final int secondChildPlace;

  TreePattern(int firstChildPlace, int secondChildPlace) {
    this.firstChildPlace = firstChildPlace;
    this.secondChildPlace = secondChildPlace;
  }

  /** Returns the place in its node's chain of the rank that speaks to a child node. */
  int place(boolean firstChild, int nodeSize) {
    return Math.min(firstChild ? firstChildPlace : secondChildPlace, nodeSize - 1);
  }
}
