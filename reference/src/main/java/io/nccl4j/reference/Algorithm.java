package io.nccl4j.reference;

import io.nccl4j.internal.reference.collective.AllReduceAlgorithm;
import java.util.Arrays;
import org.jspecify.annotations.NullMarked;
import org.jspecify.annotations.Nullable;

/** The all-reduce algorithm of the reference backend. */
@NullMarked
public enum Algorithm {
  /**
   * Chooses the fastest algorithm for each all-reduce: {@link #DIRECT} if all ranks are in one
   * process; otherwise {@link #TREE} for small data and {@link #RING} for large data.
   */
  AUTO(null),
  /**
   * Accesses the memory of all ranks directly: each rank reduces its part of the elements from
   * every rank's input and stores the result to every rank's output, in one pass. If the ranks are
   * in several processes, this is {@link #RING}.
   *
   * <p>Each part is reduced in the same rank order as on the ring, so the results are bitwise
   * identical to {@link #RING} with the same options, except that the bits of a NaN are
   * unspecified.
   */
  DIRECT(AllReduceAlgorithm.DIRECT),
  /**
   * Reduce-scatter around the ring, then all-gather around the ring. Each rank sends {@code 2 (n -
   * 1) / n} of the data in {@code 2 (n - 1)} hops.
   */
  RING(AllReduceAlgorithm.RING),
  /**
   * Reduce up and broadcast down two binary trees, each with half of the data; no rank is an inner
   * node of both. Each rank sends about twice the data in {@code 2 log2 n} hops.
   */
  TREE(AllReduceAlgorithm.TREE);

  // Null if the algorithm is chosen for each all-reduce.
  private final @Nullable AllReduceAlgorithm fixed;

  Algorithm(@Nullable AllReduceAlgorithm fixed) {
    this.fixed = fixed;
  }

  /** Returns the value for a fixed algorithm; {@link #AUTO} for null. */
  static Algorithm of(@Nullable AllReduceAlgorithm fixed) {
    return Arrays.stream(values()).filter(value -> value.fixed == fixed).findFirst().orElseThrow();
  }

  /** Returns the algorithm of every all-reduce, or null if it is chosen for each. */
  @Nullable AllReduceAlgorithm fixed() {
    return fixed;
  }
}
