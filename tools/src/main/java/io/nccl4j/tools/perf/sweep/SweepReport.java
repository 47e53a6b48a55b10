package io.nccl4j.tools.perf.sweep;

import static io.nccl4j.tools.cli.JsonTree.object;

import io.nccl4j.tools.cli.ByteSize;
import io.nccl4j.tools.cli.Count;
import io.nccl4j.tools.cli.JsonTree;
import io.nccl4j.tools.perf.report.PerfRun;
import io.nccl4j.tools.perf.report.RunReport;
import io.nccl4j.tools.perf.report.Texts;
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
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.function.BiFunction;
import java.util.stream.Collectors;

/** What came of a sweep, as a table on the terminal, CSV, JSON, charts and a page. */
final class SweepReport {
  private static final Axis SIZE = new Axis("size", Scale.BYTES);

  /** Leaves room for the widest name and a number. */
  private static final int COLUMN = 15;

  private final Outcome outcome;
  private final String arguments;

  /**
   * Prepares a report.
   *
   * @param outcome what came of the choices
   * @param arguments what the bandwidth command was given
   */
  SweepReport(Outcome outcome, String arguments) {
    this.outcome = outcome;
    this.arguments = arguments;
  }

  private String title() {
    String ranks =
        outcome.first().map(measured -> measured.facts().get("ranks")).orElse("no ranks");
    return "%s, %s backend, ranks: %s".formatted(outcome.collective(), outcome.backend(), ranks);
  }

  private String warning() {
    return RunReport.warning(
        outcome.results().stream().flatMap(trial -> trial.rounds().stream()).toList());
  }

  /** Prints the times, the best choice of each size, and why something is missing. */
  void print(PrintStream out) {
    Table times = times();
    out.printf(
        "%s; time out of place in us, the quickest of %s%n",
        title(), Count.of(outcome.rounds(), "round"));
    if (!warning().isEmpty()) {
      out.println(warning());
    }
    out.println();
    out.println(line(times.columns()));
    for (List<Cell> row : times.rows()) {
      out.println(line(row.stream().map(Cell::text).toList()));
    }
    Table missing = missing();
    if (!missing.rows().isEmpty()) {
      out.println();
      missing.rows().stream()
          .map(row -> row.stream().map(Cell::text).collect(Collectors.joining(": ")))
          .forEach(out::println);
    }
    if (!outcome.caution().isEmpty()) {
      out.println();
      out.println(outcome.caution());
    }
  }

  private static String line(List<String> cells) {
    return cells.stream()
        .map(cell -> String.format(Locale.ROOT, "%" + COLUMN + "s", cell))
        .collect(Collectors.joining())
        .stripTrailing();
  }

  private Table times() {
    List<String> columns = new ArrayList<>(List.of("size", "best", "auto costs"));
    outcome.results().forEach(trial -> columns.add(trial.choice().name()));
    List<List<Cell>> rows = new ArrayList<>();
    for (long bytes : outcome.sizes()) {
      List<Cell> row = new ArrayList<>(List.of(Cell.of(ByteSize.text(bytes))));
      row.add(Cell.of(outcome.best(bytes).map(best -> best.choice().name()).orElse("n/a")));
      row.add(cost(outcome.cost(bytes)));
      outcome.results().forEach(trial -> row.add(cell(trial, bytes)));
      rows.add(row);
    }
    return new Table(
        "Time of each choice, in us",
        "Out of place, the mean of operations enqueued back to back, of the quickest of %s, each in a process of its own. The best is the quickest choice with right data; what auto costs is how much longer the automatic choice took, below 0 if it was quicker still. Small differences may be chance."
            .formatted(Count.of(outcome.rounds(), "round")),
        columns,
        rows);
  }

  private static Cell cost(double cost) {
    return Double.isNaN(cost)
        ? new Cell("n/a", Kind.MISSING)
        : Cell.of(String.format(Locale.ROOT, "%+.0f %%", 100 * cost));
  }

  private Cell cell(SweepResult trial, long bytes) {
    return trial
        .at(bytes)
        .map(
            cell -> {
              if (cell.wrong() > 0) {
                return new Cell("wrong", Kind.WRONG);
              }
              boolean best = outcome.best(bytes).filter(trial::equals).isPresent();
              return new Cell(Texts.number(cell.micros()), best ? Kind.BEST : Kind.PLAIN);
            })
        .orElseGet(() -> new Cell(trial.missing(), Kind.MISSING));
  }

  private Table missing() {
    List<List<Cell>> rows =
        outcome.results().stream()
            .filter(trial -> trial.state() != SweepResult.State.MEASURED)
            .map(
                trial ->
                    List.of(
                        Cell.of(trial.choice().name()),
                        Cell.of(trial.state().label()),
                        Cell.text(trial.reason())))
            .toList();
    return new Table("What could not be measured", "", List.of("choice", "state", "reason"), rows);
  }

  /** Returns the charts: time, bus bandwidth, and how far each choice is from the best. */
  List<Chart> charts() {
    return List.of(
        chart("Time of each choice", new Axis("time (us)", Scale.LOGARITHMIC), SweepResult::micros),
        chart(
            "Bus bandwidth of each choice",
            new Axis("busbw (GB/s)", Scale.LINEAR),
            (trial, bytes) -> trial.at(bytes).map(PerfRun.Cell::busBw).orElse(Double.NaN)),
        chart(
            "Time of each choice, as a multiple of the best",
            new Axis("times the best", Scale.LOGARITHMIC),
            (trial, bytes) ->
                outcome
                    .best(bytes)
                    .map(best -> trial.micros(bytes) / best.micros(bytes))
                    .orElse(Double.NaN)));
  }

  private Chart chart(String title, Axis axis, BiFunction<SweepResult, Long, Double> value) {
    List<Algorithm> algorithms =
        outcome.forced().stream().map(trial -> trial.choice().algorithm()).distinct().toList();
    List<Curve> curves = new ArrayList<>();
    for (SweepResult result : outcome.results()) {
      SweepChoice choice = result.choice();
      int colour = choice.automatic() ? Curve.COLOURS - 1 : algorithms.indexOf(choice.algorithm());
      Line line =
          choice.automatic()
              ? Line.MIXED
              : choice.protocol() == null ? Line.SOLID : choice.protocol().line();
      List<Point> points =
          outcome.sizes().stream()
              .map(bytes -> new Point(bytes, value.apply(result, bytes)))
              .toList();
      curves.add(new Curve(choice.name(), colour, line, true, points));
    }
    return new Chart(title, SIZE, axis, curves);
  }

  /** Returns everything as a page. */
  Page page() {
    List<Table> tables = new ArrayList<>(List.of(times(), missing(), about()));
    tables.removeIf(table -> table.rows().isEmpty());
    List<String> lines = new ArrayList<>();
    lines.add(title() + ". A colour is an algorithm, a kind of line a protocol.");
    lines.add(outcome.caution());
    lines.removeIf(String::isEmpty);
    return new Page(
        outcome.collective() + ": every choice, and what auto costs",
        lines,
        warning(),
        charts(),
        tables);
  }

  /** Returns what ran where and how; the choices differ in nothing else. */
  private Table about() {
    Map<String, String> facts = new LinkedHashMap<>();
    facts.put("command line", "scripts/sweep " + arguments);
    outcome
        .first()
        .ifPresent(
            measured ->
                List.of("backend", "ranks", "devices", "host", "versions", "started", "iterations")
                    .forEach(name -> facts.put(name, measured.facts().getOrDefault(name, ""))));
    facts.values().removeIf(String::isEmpty);
    return new Table(
        "What was measured",
        "",
        List.of("", "all choices"),
        facts.entrySet().stream()
            .map(fact -> List.of(Cell.of(fact.getKey()), Cell.text(fact.getValue())))
            .toList());
  }

  /** Returns a line for each choice and size, and the names of the columns. */
  String csv() {
    StringBuilder csv =
        new StringBuilder("size_bytes,choice,algorithm,protocol,state,time_us,busbw_gbs,reason\n");
    for (long bytes : outcome.sizes()) {
      for (SweepResult result : outcome.results()) {
        SweepChoice choice = result.choice();
        boolean there = result.at(bytes).isPresent();
        boolean wrong = result.at(bytes).filter(cell -> cell.wrong() > 0).isPresent();
        csv.append(
            String.join(
                ",",
                Long.toString(bytes),
                choice.name(),
                choice.automatic() ? "" : choice.algorithm().label(),
                choice.protocol() == null ? "" : choice.protocol().nccl(),
                wrong ? "wrong" : there ? "ok" : result.missing(),
                result.at(bytes).map(cell -> Double.toString(cell.micros())).orElse(""),
                result.at(bytes).map(cell -> Double.toString(cell.busBw())).orElse(""),
                there && !wrong ? "" : quoted(result.reason())));
        csv.append('\n');
      }
    }
    return csv.toString();
  }

  private static String quoted(String text) {
    return '"' + text.replace("\"", "\"\"") + '"';
  }

  /** Returns everything as JSON. */
  String json() {
    Map<String, Object> about = new LinkedHashMap<>();
    about().rows().forEach(fact -> about.put(fact.get(0).text(), fact.get(1).text()));
    return JsonTree.text(
            object(
                "collective", outcome.collective(),
                "backend", outcome.backend(),
                "stand_in", outcome.standIn(),
                "rounds", outcome.rounds(),
                "caution", outcome.caution(),
                "about", about,
                "choices", outcome.results().stream().map(SweepReport::choice).toList(),
                "sizes", outcome.sizes().stream().map(this::size).toList()))
        + "\n";
  }

  private static Object choice(SweepResult trial) {
    return object(
        "choice", trial.choice().name(),
        "state", trial.state().label(),
        "reason", trial.reason(),
        "environment", trial.choice().environment());
  }

  private Object size(long bytes) {
    Map<String, Object> times = new LinkedHashMap<>();
    outcome
        .results()
        .forEach(trial -> times.put(trial.choice().name(), number(trial.micros(bytes))));
    return object(
        "size",
        bytes,
        "best",
        outcome.best(bytes).map(best -> best.choice().name()).orElse(null),
        "auto_cost",
        number(outcome.cost(bytes)),
        "times_us",
        times);
  }

  /** Returns a number, or null where there is none. */
  private static Double number(double value) {
    return Double.isNaN(value) ? null : value;
  }
}
