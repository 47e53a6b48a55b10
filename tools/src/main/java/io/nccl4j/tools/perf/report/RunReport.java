package io.nccl4j.tools.perf.report;

import io.nccl4j.tools.cli.ByteSize;
import io.nccl4j.tools.cli.OutputFile;
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
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.BiFunction;
import java.util.function.ToDoubleFunction;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * Charts and tables of runs: time, bus bandwidth and, if measured, the latencies of single
 * operations, by size. Each run has its own colour.
 */
public final class RunReport {
  private static final Axis SIZE = new Axis("size", Scale.BYTES);
  private static final Axis TIME = new Axis("time (us)", Scale.LOGARITHMIC);

  /** The size whose latency is in the headline. */
  private static final long MIB = 1 << 20;

  /** With more series than this, charts show only out-of-place results and one percentile. */
  private static final int FEW = 4;

  /** The line kinds of series, cycled through when the colours repeat. */
  private static final List<Line> LINES = List.of(Line.SOLID, Line.DASHED, Line.DOTTED, Line.MIXED);

  private static final Axis BANDWIDTH = new Axis("busbw (GB/s)", Scale.LINEAR);

  private final List<PerfRun> runs;
  private final List<Series> series = new ArrayList<>();

  /** The rows of one run that differ only in size. */
  private record Series(PerfRun run, String name, String variant, Map<Long, PerfRun.Row> rows) {}

  /** Separate buffers, or one for input and result. */
  private enum Placement {
    OUT_OF_PLACE("out of place", Line.SOLID),
    IN_PLACE("in place", Line.DASHED);

    private final String label;
    private final Line line;

    Placement(String label, Line line) {
      this.label = label;
      this.line = line;
    }

    PerfRun.Cell of(PerfRun.Row row) {
      return this == OUT_OF_PLACE ? row.outOfPlace() : row.inPlace();
    }
  }

  /** A curve of the latency chart. */
  private record Percentile(String name, Line line, ToDoubleFunction<PerfRun.Latency> value) {}

  private static final List<Percentile> PERCENTILES =
      List.of(
          new Percentile("p50", Line.SOLID, PerfRun.Latency::p50),
          new Percentile("p90", Line.DASHED, PerfRun.Latency::p90),
          new Percentile("p99", Line.DOTTED, PerfRun.Latency::p99),
          new Percentile("max", Line.MIXED, PerfRun.Latency::max));

  private RunReport(List<PerfRun> runs) {
    this.runs = runs;
    Set<String> variants = new LinkedHashSet<>();
    runs.forEach(run -> run.rows().forEach(row -> variants.add(row.variant())));
    Set<String> names = new LinkedHashSet<>();
    for (PerfRun run : runs) {
      for (String variant : variants) {
        Map<Long, PerfRun.Row> rows = new LinkedHashMap<>();
        run.rows().stream()
            .filter(row -> row.variant().equals(variant))
            .forEach(row -> rows.put(row.bytes(), row));
        if (!rows.isEmpty()) {
          String name =
              variants.size() == 1
                  ? run.label()
                  : runs.size() == 1 ? variant : run.label() + ", " + variant;
          series.add(new Series(run, distinct(names, name), variant, rows));
        }
      }
    }
  }

  private static String distinct(Set<String> names, String name) {
    String distinct = name;
    for (int next = 2; !names.add(distinct); next++) {
      distinct = name + " (" + next + ")";
    }
    return distinct;
  }

  /**
   * Writes a page with all data of runs, replacing an existing file.
   *
   * @param runs the runs
   * @param file the file
   * @throws IOException if it cannot be written
   */
  public static void writePage(List<PerfRun> runs, Path file) throws IOException {
    OutputFile.write(file, new RunReport(runs).page().html());
  }

  /**
   * {@return the charts of runs}
   *
   * @param runs the runs
   */
  public static List<Chart> charts(List<PerfRun> runs) {
    return new RunReport(runs).charts();
  }

  private Page page() throws IOException {
    String collectives =
        runs.stream().map(PerfRun::collective).distinct().collect(Collectors.joining(", "));
    return new Page(
        collectives + (runs.size() == 1 ? "" : ": " + runs.size() + " runs"),
        headline(),
        List.of(
            "Times are means of operations enqueued back to back. The spread, a vertical line in the chart, is that of several"
                + " cycles of the run (-N). A ratio followed by ? may be chance: the spreads of both times overlap."),
        warning(runs),
        Chart.drawing(charts()),
        List.of(
            numbers(Placement.OUT_OF_PLACE),
            numbers(Placement.IN_PLACE),
            latencies(),
            facts(runs)));
  }

  /**
   * {@return the peak bus bandwidth, the median latency at 1 MiB or else the next smaller size,
   * backends and machines of runs, by name}
   *
   * @param runs the runs
   */
  public static Map<String, String> headline(List<PerfRun> runs) {
    return new RunReport(runs).headline();
  }

  /** One measurement, and where it is from. */
  private record Measured(Series series, long bytes, Placement placement, PerfRun.Cell cell) {}

  private Map<String, String> headline() {
    List<Measured> all = new ArrayList<>();
    for (Series one : series) {
      for (long bytes : one.rows.keySet()) {
        for (Placement placement : Placement.values()) {
          PerfRun.Cell cell = cell(placement, bytes, one);
          if (cell != null && cell.wrong() <= 0) {
            all.add(new Measured(one, bytes, placement, cell));
          }
        }
      }
    }
    Map<String, String> headline = new LinkedHashMap<>();
    all.stream()
        .max(Comparator.comparingDouble(measured -> measured.cell.busBw()))
        .ifPresent(
            peak ->
                headline.put(
                    "peak bus bandwidth",
                    Texts.number(peak.cell.busBw())
                        + " GB/s at "
                        + ByteSize.text(peak.bytes)
                        + of(peak)));
    all.stream()
        .filter(measured -> measured.cell.latency() != null && measured.bytes <= MIB)
        .max(
            Comparator.comparingLong(Measured::bytes)
                .thenComparingDouble(measured -> -measured.cell.latency().p50()))
        .ifPresent(
            least ->
                headline.put(
                    "p50 at " + ByteSize.text(least.bytes),
                    Texts.number(least.cell.latency().p50()) + " us" + of(least)));
    headline.put("backend", distinct("backend"));
    headline.put("ranks", distinct("ranks"));
    headline.put(
        "machine",
        Stream.of("devices", "host")
            .map(this::distinct)
            .filter(text -> !text.isEmpty())
            .collect(Collectors.joining("; ")));
    headline.values().removeIf(String::isEmpty);
    return headline;
  }

  private String of(Measured measured) {
    return ", "
        + (series.size() == 1 ? "" : measured.series.name + ", ")
        + measured.placement.label;
  }

  /** Returns a fact of all runs, each of its values once. */
  private String distinct(String fact) {
    return runs.stream()
        .map(run -> run.facts().getOrDefault(fact, ""))
        .filter(text -> !text.isEmpty())
        .distinct()
        .collect(Collectors.joining("; "));
  }

  /**
   * {@return a warning about emulated devices and wrong data, or an empty string}
   *
   * @param runs the runs
   */
  public static String warning(List<PerfRun> runs) {
    List<String> sentences = new ArrayList<>();
    if (runs.stream().anyMatch(PerfRun::emulated)) {
      sentences.add(
          "Measured on the emulated CUDA of nccl4j's tests, a test fixture in host memory: no time here is NCCL's or a GPU's.");
    }
    if (runs.stream().anyMatch(RunReport::wrong)) {
      sentences.add("Some data was wrong.");
    }
    return String.join(" ", sentences);
  }

  private static boolean wrong(PerfRun run) {
    return cells(run).anyMatch(cell -> cell.wrong() > 0);
  }

  private List<Chart> charts() {
    return List.of(
        chart(
            "Time of one operation",
            TIME,
            (bytes, cell) -> new Point(bytes, cell.micros(), cell.low(), cell.high())),
        chart("Bus bandwidth", BANDWIDTH, (bytes, cell) -> new Point(bytes, cell.busBw())),
        latencyChart());
  }

  private boolean few() {
    return series.size() <= FEW;
  }

  private Chart chart(String title, Axis axis, BiFunction<Long, PerfRun.Cell, Point> point) {
    List<Placement> placements =
        few() && hasInPlace() ? List.of(Placement.values()) : List.of(Placement.OUT_OF_PLACE);
    List<Curve> curves = new ArrayList<>();
    for (int i = 0; i < series.size(); i++) {
      for (Placement placement : placements) {
        List<Point> points = points(series.get(i), placement, point);
        curves.add(curve(i, placement.label, placement.line, placements.size(), points));
      }
    }
    return new Chart(few() ? title : title + ", out of place", SIZE, axis, curves);
  }

  private boolean hasInPlace() {
    return runs.stream().flatMap(run -> run.rows().stream()).anyMatch(row -> row.inPlace() != null);
  }

  private static Stream<PerfRun.Cell> cells(PerfRun run) {
    return run.rows().stream()
        .flatMap(row -> Stream.of(row.outOfPlace(), row.inPlace()))
        .filter(Objects::nonNull);
  }

  /** Returns whether any spread is known. */
  private boolean spreads() {
    return runs.stream().flatMap(RunReport::cells).anyMatch(RunReport::spread);
  }

  /** Returns whether any run shows what NCCL chose. */
  private boolean algorithms() {
    return runs.stream().flatMap(RunReport::cells).anyMatch(cell -> cell.algorithm() != null);
  }

  private static boolean spread(PerfRun.Cell cell) {
    return cell.low() < cell.high();
  }

  private Chart latencyChart() {
    List<Percentile> percentiles =
        few() ? PERCENTILES : PERCENTILES.stream().filter(one -> one.name.equals("p99")).toList();
    List<Curve> curves = new ArrayList<>();
    for (int i = 0; i < series.size(); i++) {
      for (Percentile percentile : percentiles) {
        List<Point> points =
            points(
                series.get(i),
                Placement.OUT_OF_PLACE,
                (bytes, cell) ->
                    new Point(
                        bytes,
                        cell.latency() == null
                            ? Double.NaN
                            : percentile.value.applyAsDouble(cell.latency())));
        curves.add(curve(i, percentile.name, percentile.line, percentiles.size(), points));
      }
    }
    String title = few() ? "Latency" : "Latency (p99)";
    return new Chart(title + " of single operations, out of place", SIZE, TIME, curves);
  }

  /** Returns a curve named after its series, its kind, or both if both vary. */
  private Curve curve(int i, String kind, Line line, int kinds, List<Point> points) {
    String name = series.get(i).name;
    if (kinds == 1) {
      return new Curve(name, i, LINES.get(i / Curve.COLOURS % LINES.size()), true, points);
    }
    return new Curve(series.size() == 1 ? kind : name + ", " + kind, i, line, true, points);
  }

  private static List<Point> points(
      Series series, Placement placement, BiFunction<Long, PerfRun.Cell, Point> point) {
    return series.rows.values().stream()
        .filter(row -> placement.of(row) != null)
        .map(row -> point.apply(row.bytes(), placement.of(row)))
        .toList();
  }

  /**
   * {@return a table of the configurations, with a column for each run}
   *
   * @param runs the runs
   */
  public static Table facts(List<PerfRun> runs) {
    Set<String> names = new LinkedHashSet<>();
    runs.forEach(run -> names.addAll(run.facts().keySet()));
    List<String> columns = new ArrayList<>(List.of(""));
    runs.forEach(run -> columns.add(run.label()));
    List<List<Cell>> rows = new ArrayList<>();
    for (String name : names) {
      List<Cell> row = new ArrayList<>(List.of(Cell.of(name)));
      runs.forEach(run -> row.add(Cell.text(run.facts().getOrDefault(name, ""))));
      rows.add(row);
    }
    return new Table("Configuration", "", columns, rows);
  }

  private Table numbers(Placement placement) {
    List<String> columns = new ArrayList<>(List.of("size"));
    for (int i = 0; i < series.size(); i++) {
      String name = series.size() == 1 ? "" : series.get(i).name + ", ";
      columns.add(name + "time (us)");
      if (spreads()) {
        columns.add(name + "spread");
      }
      columns.add(name + "busbw (GB/s)");
      if (algorithms()) {
        columns.add(name + "algorithm");
      }
      if (i > 0) {
        columns.add("time against " + series.getFirst().name);
      }
    }
    List<List<Cell>> rows = new ArrayList<>();
    for (long bytes : sizes()) {
      List<Cell> row = new ArrayList<>(List.of(Cell.of(ByteSize.text(bytes))));
      for (int i = 0; i < series.size(); i++) {
        row.addAll(numbers(placement, bytes, i));
      }
      rows.add(row);
    }
    rows.removeIf(row -> row.stream().skip(1).allMatch(cell -> cell.kind() == Kind.MISSING));
    return new Table("Numbers, " + placement.label, "", columns, rows);
  }

  private Set<Long> sizes() {
    Set<Long> sizes = new TreeSet<>();
    series.forEach(one -> sizes.addAll(one.rows.keySet()));
    return sizes;
  }

  private List<Cell> numbers(Placement placement, long bytes, int i) {
    PerfRun.Cell cell = cell(placement, bytes, series.get(i));
    List<Cell> cells = new ArrayList<>();
    if (cell == null) {
      Cell missing = new Cell("n/a", Kind.MISSING);
      int columns = 2 + (spreads() ? 1 : 0) + (algorithms() ? 1 : 0);
      cells.addAll(Collections.nCopies(columns, missing));
    } else {
      String wrong = cell.wrong() > 0 ? ", " + cell.wrong() + " wrong" : "";
      cells.add(
          new Cell(Texts.number(cell.micros()) + wrong, wrong.isEmpty() ? Kind.PLAIN : Kind.WRONG));
      if (spreads()) {
        cells.add(
            spread(cell)
                ? Cell.of(Texts.number(cell.low()) + " to " + Texts.number(cell.high()))
                : new Cell("n/a", Kind.MISSING));
      }
      cells.add(Cell.of(Texts.number(cell.busBw())));
      if (algorithms()) {
        cells.add(
            cell.algorithm() == null ? new Cell("n/a", Kind.MISSING) : Cell.of(cell.algorithm()));
      }
    }
    if (i > 0) {
      PerfRun.Cell first = cell(placement, bytes, series.getFirst());
      cells.add(
          cell == null || first == null
              ? new Cell("n/a", Kind.MISSING)
              : Cell.of(
                  Texts.ratio(cell.micros() / first.micros()) + (cell.overlaps(first) ? "?" : "")));
    }
    return cells;
  }

  private static PerfRun.Cell cell(Placement placement, long bytes, Series series) {
    PerfRun.Row row = series.rows.get(bytes);
    return row == null ? null : placement.of(row);
  }

  private Table latencies() {
    List<List<Cell>> rows = new ArrayList<>();
    for (long bytes : sizes()) {
      for (Series one : series) {
        for (Placement placement : Placement.values()) {
          PerfRun.Cell cell = cell(placement, bytes, one);
          if (cell != null && cell.latency() != null) {
            String name = series.size() == 1 ? placement.label : one.name + ", " + placement.label;
            rows.add(latency(bytes, name, cell.latency()));
          }
        }
      }
    }
    return new Table(
        "Latency of single operations, in us",
        "Measured one by one in a separate loop, from enqueuing until all ranks have finished. Percentiles use the"
            + " nearest-rank method: the p99 of fewer than 100 operations is the longest time.",
        List.of("size", "of", "operations", "min", "p50", "p90", "p99", "max"),
        rows);
  }

  private static List<Cell> latency(long bytes, String name, PerfRun.Latency latency) {
    List<Cell> row =
        new ArrayList<>(
            List.of(Cell.of(ByteSize.text(bytes)), Cell.of(name), Cell.of("" + latency.count())));
    for (double value :
        new double[] {latency.min(), latency.p50(), latency.p90(), latency.p99(), latency.max()}) {
      row.add(Cell.of(Texts.number(value)));
    }
    return row;
  }
}
