package io.nccl4j.tools.simulate;

import io.nccl4j.tools.cli.Count;
import io.nccl4j.tools.plots.Axis;
import io.nccl4j.tools.plots.Axis.Scale;
import io.nccl4j.tools.plots.Chart;
import io.nccl4j.tools.plots.Curve;
import io.nccl4j.tools.plots.Curve.Line;
import io.nccl4j.tools.plots.Curve.Point;
import io.nccl4j.tools.plots.Page;
import io.nccl4j.tools.plots.Table;
import io.nccl4j.tools.plots.Table.Cell;
import io.nccl4j.tools.plots.Table.Kind;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.ToDoubleFunction;
import java.util.stream.LongStream;

/**
 * Formats a scenario as a page with tables and charts: time and bus bandwidth by size, each
 * algorithm with each protocol; and, for a sweep over ranks, both by ranks, each algorithm with its
 * best protocol. Colours distinguish algorithms, line styles protocols.
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
    HtmlPage page = new HtmlPage(scenario);
    return new Page(
            TextReport.cluster(scenario),
            page.headline(),
            List.of(
                TextReport.network(scenario),
                "A model: nothing was measured. Colours are algorithms, line styles are protocols."),
            "",
            Chart.drawing(page.charts()),
            List.of(page.sizes(), page.crossovers(), page.ranks()))
        .html();
  }

  /** Returns the fastest algorithm at some sizes, by size. */
  private Map<String, String> headline() {
    Map<String, String> headline = new LinkedHashMap<>();
    List<Long> sizes =
        scenario.size() == null ? List.of(1L << 10, 1L << 20, 1L << 30) : List.of(scenario.size());
    for (long bytes : sizes) {
      Estimate best = scenario.model().best(bytes);
      headline.put(
          "fastest at " + Text.bytes(bytes),
          "%s, busbw %s".formatted(TextReport.inShort(best), Text.bandwidth(best.busbw())));
    }
    return headline;
  }

  private Table sizes() {
    Model model = scenario.model();
    List<String> columns = new ArrayList<>(List.of("size"));
    model.algorithms().forEach(algorithm -> columns.add(algorithm.label()));
    columns.add("busbw of the fastest");
    List<List<Cell>> rows = new ArrayList<>();
    for (long bytes : Scenario.sizes()) {
      Estimate best = model.best(bytes);
      List<Cell> row = new ArrayList<>(List.of(Cell.of(Text.bytes(bytes))));
      for (Algorithm algorithm : model.algorithms()) {
        Estimate estimate = model.best(algorithm, bytes);
        String text = TextReport.protocol(estimate) + ", " + Text.seconds(estimate.seconds());
        row.add(new Cell(text, algorithm == best.algorithm() ? Kind.BEST : Kind.PLAIN));
      }
      row.add(Cell.of(Text.bandwidth(best.busbw())));
      rows.add(row);
    }
    return new Table("Time by size", "Each algorithm with its best protocol.", columns, rows);
  }

  private Table crossovers() {
    return new Table(
        "Crossovers",
        "",
        List.of("algorithms", "the faster one"),
        TextReport.crossovers(scenario).stream()
            .map(line -> line.split(": ", 2))
            .map(parts -> List.of(Cell.of(parts[0]), Cell.text(parts[1])))
            .toList());
  }

  private Table ranks() {
    List<String> columns = new ArrayList<>(List.of("ranks"));
    RankSweep.SIZES.forEach(bytes -> columns.add(Text.bytes(bytes)));
    List<List<Cell>> rows = new ArrayList<>();
    for (Model model : scenario.sweep() == null ? List.<Model>of() : scenario.sweep().models()) {
      List<Cell> row = new ArrayList<>(List.of(Cell.of("" + model.cluster().ranks())));
      RankSweep.SIZES.forEach(bytes -> row.add(Cell.of(TextReport.inShort(model.best(bytes)))));
      rows.add(row);
    }
    return new Table("The fastest by ranks and size", "", columns, rows);
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
