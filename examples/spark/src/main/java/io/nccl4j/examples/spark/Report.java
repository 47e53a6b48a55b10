package io.nccl4j.examples.spark;

import java.io.PrintStream;
import java.util.List;
import java.util.Locale;
import java.util.TreeSet;

/** Prints the results of the command. */
final class Report {
  private final PrintStream out;

  Report(PrintStream out) {
    this.out = out;
  }

  void ranks(List<RankFit> ranks) {
    print(
        "%4s  %7s  %9s  %-21s  %-12s  %10s%n",
        "rank", "attempt", "process", "executor", "device", "rows");
    for (RankFit rank : ranks) {
      print(
          "%4d  %7d  %9d  %-21s  %-12s  %10d%n",
          rank.rank(), rank.attempt(), rank.process(), rank.executor(), rank.device(), rank.rows());
    }
  }

  void errors(List<Double> errors) {
    print("%n%4s  %s%n", "step", "mean squared error");
    TreeSet<Integer> steps = new TreeSet<>(List.of(0, errors.size() - 1));
    for (int step = 1; step < errors.size(); step *= 2) {
      steps.add(step);
    }
    for (int step : steps) {
      print("%4d  %.6g%n", step, errors.get(step));
    }
  }

  void comparison(Comparison comparison, int ranks) {
    print(
        "%nlargest difference from the coefficients of the data: %.2g (noise %.2g)%n",
        comparison.toGenerated(), LeastSquares.NOISE);
    print(
        "largest difference of %d ranks from one rank: %.2g, allowed %.2g: %s%n",
        ranks, comparison.toOneRank(), comparison.allowed(), comparison.holds() ? "OK" : "WRONG");
  }

  private void print(String format, Object... values) {
    out.printf(Locale.ROOT, format, values);
  }
}
