package io.nccl4j.tools.simulate;

import io.nccl4j.tools.cli.Count;
import io.nccl4j.tools.plots.Axis;
import io.nccl4j.tools.plots.Axis.Scale;
import io.nccl4j.tools.plots.Chart;
import io.nccl4j.tools.plots.Curve;
import io.nccl4j.tools.plots.Curve.Line;
import io.nccl4j.tools.plots.Curve.Point;
import io.nccl4j.tools.plots.Page;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.ToDoubleFunction;
import java.util.stream.LongStream;

/**
 * Formats a scenario as a page with charts: time and bus bandwidth by size, each algorithm with
 * each protocol; and, for a sweep over ranks, both by ranks, each algorithm with its best protocol.
 * Colours distinguish algorithms, line styles protocols.
 */
final class HtmlPage {
  /** The smallest size of the curves, which have a point at every power of two. */
  private static final long FIRST_SIZE = 1 << 10;

  private static final long LAST_SIZE = 16L << 30;

  /** The size for the comparison by ranks, if none is given. */
  private static final long DEFAULT_SIZE = 64L << 20;

  private static final Axis SIZES = new Axis("size of each rank's data", Scale.BYTES);
  private static final Axis RANKS = new Axis("ranks", Scale.LOGARITHMIC);
  private static final Axis TIME = new Axis("time (us)", Scale.LOGARITHMIC);
  private static final Axis BANDWIDTH = new Axis("busbw (GB/s)", Scale.LOGARITHMIC);

  private final Scenario scenario;

  private HtmlPage(Scenario scenario) {
    this.scenario = scenario;
  }

  /** Returns the page. */
  static String of(Scenario scenario) throws IOException {
    return new Page(
            TextReport.cluster(scenario),
            Map.of(),
            List.of(
                TextReport.network(scenario),
                "A model: nothing was measured. Colours are algorithms, line styles are protocols."),
            "",
            Chart.drawing(charts(scenario)),
            List.of())
        .html();
  }

  /** Returns the charts of a scenario. */
  static List<Chart> charts(Scenario scenario) {
    return new HtmlPage(scenario).charts();
  }

  private List<Chart> charts() {
    Cluster of = scenario.model().cluster();
    String cluster = "%s, %d per node".formatted(Count.of(of.ranks(), "rank"), of.ranksPerNode());
    List<Chart> charts = new ArrayList<>();
    charts.add(bySize("Time, " + cluster, TIME, e -> Text.micros(e.seconds())));
    charts.add(bySize("Bus bandwidth, " + cluster, BANDWIDTH, e -> Text.gigas(e.busbw())));
    if (scenario.sweep() != null) {
      long bytes = scenario.size() == null ? DEFAULT_SIZE : scenario.size();
      String size = Text.bytes(bytes) + ", best protocol";
      charts.add(byRanks("Time, " + size, TIME, bytes, e -> Text.micros(e.seconds())));
      charts.add(byRanks("Bus bandwidth, " + size, BANDWIDTH, bytes, e -> Text.gigas(e.busbw())));
    }
    return charts;
  }

  private Chart bySize(String title, Axis axis, ToDoubleFunction<Estimate> value) {
    Model model = scenario.model();
    List<Curve> curves = new ArrayList<>();
    for (Estimate first : model.estimates(FIRST_SIZE)) {
      List<Point> points =
          LongStream.iterate(FIRST_SIZE, size -> size <= LAST_SIZE, size -> 2 * size)
              .mapToObj(size -> model.estimate(first.algorithm(), first.protocol(), size))
              .map(estimate -> new Point(estimate.bytes(), value.applyAsDouble(estimate)))
              .toList();
      String name = first.algorithm().label() + " " + TextReport.protocol(first);
      curves.add(new Curve(name, colour(first.algorithm()), line(first), false, points));
    }
    return new Chart(title, SIZES, axis, curves);
  }

  private Chart byRanks(String title, Axis axis, long bytes, ToDoubleFunction<Estimate> value) {
    List<Curve> curves = new ArrayList<>();
    for (Algorithm algorithm : Algorithm.values()) {
      List<Point> points =
          scenario.sweep().models().stream()
              .filter(model -> model.algorithms().contains(algorithm))
              .map(model -> model.best(algorithm, bytes))
              .map(estimate -> new Point(estimate.ranks(), value.applyAsDouble(estimate)))
              .toList();
      curves.add(new Curve(algorithm.label(), colour(algorithm), Line.SOLID, false, points));
    }
    return new Chart(title, RANKS, axis, curves);
  }

  private static int colour(Algorithm algorithm) {
    return switch (algorithm) {
      case RING -> 0;
      case TREE -> 1;
      case HIERARCHICAL -> 2;
    };
  }

  private static Line line(Estimate estimate) {
    return switch (estimate.protocol()) {
      case SIMPLE -> Line.SOLID;
      case LL128 -> Line.DASHED;
      case LL -> Line.DOTTED;
    };
  }
}
