package io.nccl4j.examples.spark;

import java.util.Collections;
import java.util.List;

/**
 * Compares the fit of several ranks with that of one rank, and with the generating coefficients.
 *
 * @param toOneRank the largest difference of a coefficient from that of one rank
 * @param allowed the limit of {@code toOneRank}
 * @param toGenerated the largest difference of a coefficient from the one that generated the data
 */
record Comparison(double toOneRank, double allowed, double toGenerated) {
  private static final double UNIT_ROUNDOFF = 0x1p-53;

  /** Compares the fits; all ranks must have the same coefficients, bit for bit. */
  static Comparison of(LeastSquares data, List<RankFit> ranks, RankFit one) {
    List<Double> found = ranks.getFirst().coefficients();
    for (RankFit rank : ranks) {
      if (!found.equals(rank.coefficients())) {
        throw new IllegalStateException(
            "rank " + rank.rank() + " has other coefficients than rank 0 despite the same sums");
      }
    }
    return new Comparison(
        largestDifference(found, one.coefficients()),
        allowed(data, one),
        largestDifference(found, data.coefficients()));
  }

  /**
   * {@return a first-order bound of the difference of two fits that differ only in the order of
   * their sums} A component of the mean gradient has an error of at most (rows + features)
   * roundings of its terms, whose mean size is at most the root of the mean squared error. Each
   * step adds that error times the rate, in each of two fits, and no step amplifies earlier errors.
   */
  static double allowed(LeastSquares data, RankFit fit) {
    double largestError = Collections.max(fit.errors());
    double gradient =
        (data.rows() + data.features()) * UNIT_ROUNDOFF * Math.sqrt(data.features() * largestError);
    return 2 * fit.errors().size() * Fit.RATE * gradient;
  }

  boolean holds() {
    // False for NaN.
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
