package io.nccl4j.schedule;

import org.jspecify.annotations.NullMarked;

/**
 * How the tree between nodes is connected to the chain of ranks inside a node. The first rank of
 * the chain is always connected to the parent node; the patterns differ in the ranks that are
 * connected to the child nodes. NCCL selects a pattern from the topology and logs the resulting
 * trees ({@code NCCL_DEBUG=INFO}, lines with {@code Trees}).
 */
@NullMarked
public enum TreePattern {
  /** The first rank is connected to both child nodes. Nodes of one rank use this pattern. */
  TREE,
  /** The second rank is connected to the first child node, the first rank to the second one. */
  BALANCED_TREE,
  /** The second rank is connected to both child nodes. */
  SPLIT_TREE
}
