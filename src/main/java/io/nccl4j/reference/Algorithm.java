package io.nccl4j.reference;

/** How the reference backend carries out an all-reduce. */
public enum Algorithm {
  /** The tree for small data, the ring for large. */
  AUTO,
  /**
   * Reduce-scatter around the ring, then all-gather around the ring. Each rank sends {@code 2 (n -
   * 1) / n} of the data in {@code 2 (n - 1)} hops.
   */
  RING,
  /**
   * Up and down two binary trees, each with half of the data, in which no rank is an inner node of
   * both. Each rank sends about twice the data in {@code 2 log2 n} hops.
   */
  TREE
}
