package io.nccl4j.reference;

import io.nccl4j.internal.reference.collective.AllReduceAlgorithm;
import java.util.Arrays;

/** How the reference backend carries out an all-reduce. */
public enum Algorithm {
  /**
   * What is fastest: {@link #DIRECT} where all ranks are of one process, or on one host with small
   * data, else the tree for small data and the ring for large.
   */
  AUTO(null),
  /**
   * For ranks of one process, whose memory all of them reach: each folds its part of the elements
   * out of every rank's input and stores it to every rank's output, in one pass. Each part is
   * folded from the same ranks in the same order as on the ring, so the results are the bits of
   * {@link #RING} with the same options, except that which of the many NaNs results is not
   * promised. In several processes of one host, ranks put their inputs and results into memory that
   * all share ({@link Transport#AUTO}), round by round, for the same bits. With ranks on other
   * hosts it is {@link #RING}.
   */
  DIRECT(AllReduceAlgorithm.DIRECT),
  /**
   * Reduce-scatter around the ring, then all-gather around the ring. Each rank sends {@code 2 (n -
   * 1) / n} of the data in {@code 2 (n - 1)} hops.
   */
  RING(AllReduceAlgorithm.RING),
  /**
   * Up and down two binary trees, each with half of the data, in which no rank is an inner node of
   * both. Each rank sends about twice the data in {@code 2 log2 n} hops.
   */
  TREE(AllReduceAlgorithm.TREE);

  // Null where it is chosen for each all-reduce.
  private final AllReduceAlgorithm fixed;

  Algorithm(AllReduceAlgorithm fixed) {
    this.fixed = fixed;
  }

  /** Returns the value for a fixed algorithm; {@link #AUTO} for null. */
  static Algorithm of(AllReduceAlgorithm fixed) {
    return Arrays.stream(values()).filter(value -> value.fixed == fixed).findFirst().orElseThrow();
  }

  /** Returns how every all-reduce is carried out; null where that is chosen for each. */
  AllReduceAlgorithm fixed() {
    return fixed;
  }
}
