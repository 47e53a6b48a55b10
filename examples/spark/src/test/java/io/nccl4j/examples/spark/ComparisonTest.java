package io.nccl4j.examples.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Test;

class ComparisonTest {
  private static final LeastSquares DATA = new LeastSquares(1000, 2, 5);

  private static RankFit fit(int rank, double first, double second) {
    return new RankFit(
        rank, 0, 1, "host:1", "reference 0", 500, List.of(first, second), List.of(4.0, 1.0));
  }

  private static Comparison compare(double found, double alone) {
    return Comparison.of(DATA, List.of(fit(0, found, 1), fit(1, found, 1)), fit(0, alone, 1));
  }

  @Test
  void fitsAgreeUpToRounding() {
    // 2 fits, 2 steps at rate 0.5, 1002 roundings of terms of mean size sqrt(2 * 4).
    double allowed = 2 * 2 * 0.5 * 1002 * 0x1p-53 * Math.sqrt(8);
    Comparison equal = compare(0.5, 0.5);
    assertEquals(allowed, equal.allowed(), 1e-25);
    assertEquals(0, equal.toOneRank());
    assertTrue(equal.holds());
    assertTrue(compare(0.5, 0.5 + 0.9 * allowed).holds());
    assertFalse(compare(0.5, 0.5 + 1.1 * allowed).holds());
    assertFalse(compare(Double.NaN, 0.5).holds());
    assertFalse(compare(Double.NaN, Double.NaN).holds());
  }

  @Test
  void distanceToTheGeneratedIsTheLargestDifference() {
    List<Double> generated = DATA.coefficients();
    RankFit fit = fit(0, generated.getFirst() + 0.25, generated.getLast() - 0.5);
    assertEquals(0.5, Comparison.of(DATA, List.of(fit), fit).toGenerated(), 1e-15);
  }

  @Test
  void rankWithOtherCoefficientsIsNamed() {
    List<RankFit> ranks = List.of(fit(0, 1, 1), fit(1, 1, 1), fit(2, 1, Math.nextUp(1.0)));
    IllegalStateException different =
        assertThrows(
            IllegalStateException.class, () -> Comparison.of(DATA, ranks, ranks.getFirst()));
    assertEquals(
        "rank 2 has other coefficients than rank 0 despite the same sums", different.getMessage());
  }
}
