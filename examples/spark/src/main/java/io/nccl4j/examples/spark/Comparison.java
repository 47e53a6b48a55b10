package io.nccl4j.examples.spark;

import java.util.Collections;
import java.util.List;

/**
 * The fit of several ranks beside that of one rank, and beside what the data was generated with.
 *
 * @param toOneRank the largest difference of a coefficient from that of one rank
 * @param allowed what {@code toOneRank} may be at most
 * @param toGenerated the largest difference of a coefficient from what the data was generated with
 */
record Comparison(double toOneRank, double allowed, double toGenerated) {
  private static final double UNIT_ROUNDOFF = 0x1p-53;

  /** Compares; all ranks must have the same coefficients, bit for bit. */
  static Comparison of(LeastSquares data, List<RankFit> ranks, RankFit one) {
    List<Double> found = ranks.getFirst().coefficients();
    for (RankFit rank : ranks) {
      if (!found.equals(rank.coefficients())) {
        throw new IllegalStateException(
            "rank " + rank.rank() + " has other coefficients than rank 0 after the same sums");
      }
    }
    return new Comparison(
        largestDifference(found, one.coefficients()),
        allowed(data, one),
        largestDifference(found, data.coefficients()));
  }

  /**
   * {@return how far two fits may be apart that differ only in the order of their sums} To first
   * order: a component of the mean gradient is off by at most (rows + features) roundings of its
   * terms, whose mean size is at most the root of the mean squared error; each step adds that times
   * the rate, in each of two fits, and none makes earlier errors larger.
   */
  static double allowed(LeastSquares data, RankFit fit) {
    double largestError = Collections.max(fit.errors());
    double gradient =
        (data.rows() + data.features()) * UNIT_ROUNDOFF * Math.sqrt(data.features() * largestError);
    return 2 * fit.errors().size() * Fit.RATE * gradient;
  }

  boolean holds() {
    // False for what is not a number.
    return toOneRank <= allowed;
  }

  private static double largestDifference(List<Double> first, List<Double> second) {
    double largest = 0;
    for (int i = 0; i < first.size(); i++) {
      largest = Math.max(largest, Math.abs(first.get(i) - second.get(i)));
    }
    return largest;
  }
}
