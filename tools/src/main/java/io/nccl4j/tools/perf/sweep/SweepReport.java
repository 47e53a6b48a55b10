package io.nccl4j.tools.perf.sweep;

import static io.nccl4j.tools.cli.JsonTree.object;

import io.nccl4j.tools.cli.ByteSize;
import io.nccl4j.tools.cli.Count;
import io.nccl4j.tools.cli.JsonTree;
import io.nccl4j.tools.perf.report.PerfRun;
import io.nccl4j.tools.perf.report.RunReport;
import io.nccl4j.tools.perf.report.Texts;
import io.nccl4j.tools.plots.Chart;
import io.nccl4j.tools.plots.Page;
import io.nccl4j.tools.plots.Table;
import io.nccl4j.tools.plots.Table.Cell;
import io.nccl4j.tools.plots.Table.Kind;
import java.io.IOException;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.stream.Collectors;

/** The results of a sweep as a printed table, CSV, JSON and a page. */
final class SweepReport {
  /** The least width of a printed column. */
  private static final int COLUMN_WIDTH = 15;

  private final Outcome outcome;
  private final String arguments;

  /**
   * Creates a report.
   *
   * @param outcome the results
   * @param arguments the arguments of the bandwidth command
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
        outcome.results().stream().flatMap(result -> result.rounds().stream()).toList());
  }

  /** Prints the times, the best choice for each size, and the reasons for missing results. */
  void print(PrintStream out) {
    Table times = times();
    out.printf(
        "%s; time out of place in us, the quickest of %s%n",
        title(), Count.of(outcome.rounds(), "round"));
    if (!warning().isEmpty()) {
      out.println(warning());
    }
    out.println();
    List<List<String>> lines = new ArrayList<>(List.of(times.columns()));
    times.rows().forEach(row -> lines.add(row.stream().map(Cell::text).toList()));
    int longest = lines.stream().flatMap(List::stream).mapToInt(String::length).max().orElse(0);
    lines.forEach(line -> out.println(line(line, Math.max(COLUMN_WIDTH, longest + 2))));
    Table missing = missing();
    if (!missing.rows().isEmpty()) {
      out.println();
      missing.rows().stream()
          .map(row -> row.stream().map(Cell::text).collect(Collectors.joining(": ")))
          .forEach(out::println);
    }
  }

  private static String line(List<String> cells, int width) {
    return cells.stream()
        .map(cell -> String.format(Locale.ROOT, "%" + width + "s", cell))
        .collect(Collectors.joining())
        .stripTrailing();
  }

  private Table times() {
    List<String> columns = new ArrayList<>(List.of("size", "best", "auto costs"));
    if (outcome.chosen() != null) {
      columns.add("auto chose");
    }
    outcome.results().forEach(result -> columns.add(result.choice().name()));
    List<List<Cell>> rows = new ArrayList<>();
    for (long bytes : outcome.sizes()) {
      List<Cell> row = new ArrayList<>(List.of(Cell.of(ByteSize.text(bytes))));
      row.add(Cell.of(outcome.best(bytes).map(best -> best.choice().name()).orElse("n/a")));
      row.add(cost(bytes));
      if (outcome.chosen() != null) {
        row.add(outcome.chosen(bytes).map(Cell::of).orElse(new Cell("n/a", Kind.MISSING)));
      }
      outcome.results().forEach(result -> row.add(cell(result, bytes)));
      rows.add(row);
    }
    return new Table(
        "Time of each choice, in us",
        "Mean time of out-of-place operations enqueued back to back, in the quickest of %s, each in a separate process. The best is the quickest forced choice with right data; 'auto costs' is the extra time of the automatic choice, negative if it was quicker, or the ratio of the times from 2 on. It is followed by ? if it may be chance: the times of both overlap, each from the quickest to the median round. 'auto chose' is what NCCL reports: algorithm, protocol and channels, or - if it reports nothing."
            .formatted(Count.of(outcome.rounds(), "round")),
        columns,
        rows);
  }

  private Cell cost(long bytes) {
    double cost = outcome.cost(bytes);
    if (Double.isNaN(cost)) {
      return new Cell("n/a", Kind.MISSING);
    }
    String text =
        cost < 1
            ? String.format(Locale.ROOT, "%+.0f %%", 100 * cost)
            : "x " + Texts.ratio(1 + cost);
    return Cell.of(text + (outcome.costMayBeChance(bytes) ? "?" : ""));
  }

  private Cell cell(SweepResult result, long bytes) {
    return result
        .at(bytes)
        .map(
            cell -> {
              if (cell.wrong() > 0) {
                return new Cell("wrong", Kind.WRONG);
              }
              boolean best = outcome.best(bytes).filter(result::equals).isPresent();
              return new Cell(Texts.number(cell.micros()), best ? Kind.BEST : Kind.PLAIN);
            })
        .orElseGet(() -> new Cell(result.missing(), Kind.MISSING));
  }

  private Table missing() {
    List<List<Cell>> rows = new ArrayList<>();
    outcome.results().forEach(result -> addMissing(rows, result.choice().name(), result));
    if (outcome.chosen() != null) {
      addMissing(rows, "auto chose", outcome.chosen());
    }
    return new Table("Missing results", "", List.of("choice", "state", "reason"), rows);
  }

  private static void addMissing(List<List<Cell>> rows, String name, SweepResult result) {
    if (result.state() != SweepResult.State.MEASURED) {
      rows.add(List.of(Cell.of(name), Cell.of(result.state().label()), Cell.text(result.reason())));
    }
  }

  /** Returns everything as a page. */
  Page page() throws IOException {
    List<PerfRun> runs =
        outcome.results().stream()
            .filter(result -> !result.rounds().isEmpty())
            .map(SweepResult::run)
            .toList();
    return new Page(
        outcome.collective() + ": every choice, and what auto costs",
        RunReport.headline(runs),
        List.of(),
        warning(),
        Chart.drawing(RunReport.charts(runs)),
        List.of(times(), missing(), about()));
  }

  /** Returns the configuration that all choices share. */
  private Table about() {
    Map<String, String> facts = new LinkedHashMap<>();
    facts.put("command line", "nccl4j sweep " + arguments);
    outcome
        .first()
        .ifPresent(
            measured ->
                List.of("backend", "ranks", "devices", "host", "versions", "started", "iterations")
                    .forEach(name -> facts.put(name, measured.facts().getOrDefault(name, ""))));
    facts.values().removeIf(String::isEmpty);
    return new Table(
        "Configuration",
        "",
        List.of("", "all choices"),
        facts.entrySet().stream()
            .map(fact -> List.of(Cell.of(fact.getKey()), Cell.text(fact.getValue())))
            .toList());
  }

  /** Returns a CSV header, and a line for each choice and size. */
  String csv() {
    StringBuilder csv =
        new StringBuilder("size_bytes,choice,algorithm,protocol,state,time_us,busbw_gbs,reason\n");
    for (long bytes : outcome.sizes()) {
      for (SweepResult result : outcome.results()) {
        SweepChoice choice = result.choice();
        boolean measured = result.at(bytes).isPresent();
        boolean wrong = result.at(bytes).filter(cell -> cell.wrong() > 0).isPresent();
        csv.append(
            String.join(
                ",",
                Long.toString(bytes),
                choice.name(),
                choice.equals(SweepChoice.AUTO) ? "" : choice.algorithm().label(),
                choice.protocolLabel(),
                wrong ? "wrong" : measured ? "ok" : result.missing(),
                result.at(bytes).map(cell -> Double.toString(cell.micros())).orElse(""),
                result.at(bytes).map(cell -> Double.toString(cell.busBw())).orElse(""),
                measured && !wrong ? "" : quoted(result.reason())));
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
                "emulated", outcome.emulated(),
                "rounds", outcome.rounds(),
                "about", about,
                "choices", outcome.results().stream().map(SweepReport::choice).toList(),
                "sizes", outcome.sizes().stream().map(this::size).toList()))
        + "\n";
  }

  private static Object choice(SweepResult result) {
    return object(
        "choice", result.choice().name(),
        "state", result.state().label(),
        "reason", result.reason(),
        "arguments", result.choice().arguments());
  }

  private Object size(long bytes) {
    Map<String, Object> times = new LinkedHashMap<>();
    outcome
        .results()
        .forEach(result -> times.put(result.choice().name(), number(result.micros(bytes))));
    return object(
        "size",
        bytes,
        "best",
        outcome.best(bytes).map(best -> best.choice().name()).orElse(null),
        "auto_cost",
        number(outcome.cost(bytes)),
        "auto_cost_may_be_chance",
        outcome.costMayBeChance(bytes),
        "auto_chose",
        outcome.chosen() == null ? null : outcome.chosen(bytes).orElse(null),
        "times_us",
        times);
  }

  /** Returns a number, or null for NaN. */
  private static Double number(double value) {
    return Double.isNaN(value) ? null : value;
  }
}
