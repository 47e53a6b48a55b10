package io.nccl4j.tools.flight;

import static io.nccl4j.tools.cli.JsonTree.object;

import io.nccl4j.tools.flight.RankLog.Call;
import io.nccl4j.tools.plots.Page;
import io.nccl4j.tools.plots.Table;
import io.nccl4j.tools.plots.Table.Cell;
import java.io.IOException;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.LongStream;

/** Formats comparisons as text, JSON and a page. */
final class Reports {
  // The last collectives that the page shows.
  private static final int SHOWN = 24;

  private Reports() {}

  static String title(Comparison comparison) {
    RankLog any = comparison.any();
    return "communicator %s%s, %d %s, %s"
        .formatted(
            any.communicator(),
            any.name().isEmpty() ? "" : " (" + any.name() + ")",
            any.size(),
            any.size() == 1 ? "rank" : "ranks",
            any.backend());
  }

  private static List<String> verdicts(Comparison comparison) {
    return comparison.findings().isEmpty()
        ? List.of(none(comparison))
        : comparison.findings().stream()
            .map(finding -> finding.kind().label() + ": " + finding.text())
            .toList();
  }

  private static String none(Comparison comparison) {
    return comparison.lastCall() == 0
        ? "no difference: no rank has called anything"
        : "no difference: what is recorded is the same on every rank, and completed";
  }

  /** Returns the first collective that a rank has called and not completed, or a dash. */
  private static String waitsIn(RankLog log) {
    return log.firstPending()
        .map(call -> call.number() + " " + call + log.waited(call))
        .orElse("-");
  }

  /** Returns the number of the last completed collective, or a dash if it is not known. */
  private static String completed(RankLog log) {
    return log.completed() < 0 ? "-" : String.valueOf(log.completed());
  }

  static void text(Comparison comparison, PrintStream out) {
    out.println(title(comparison));
    verdicts(comparison).forEach(out::println);
    int hosts =
        comparison.logs().values().stream()
            .mapToInt(log -> log.worker().host().length())
            .max()
            .orElseThrow();
    String row = "  %4s  %-" + Math.max(4, hosts) + "s  %8s  %8s  %9s  %s%n";
    out.printf(row, "rank", "host", "process", "called", "completed", "waits in");
    for (RankLog log : comparison.logs().values()) {
      out.printf(
          row,
          log.rank(),
          log.worker().host(),
          log.worker().process(),
          log.called(),
          completed(log),
          waitsIn(log));
    }
    out.println();
  }

  static Object json(Comparison comparison) {
    RankLog any = comparison.any();
    return object(
        "communicator", any.communicator(),
        "name", any.name(),
        "backend", any.backend(),
        "size", any.size(),
        "ranks",
            comparison.logs().values().stream()
                .map(
                    log ->
                        object(
                            "rank", log.rank(),
                            "host", log.worker().host(),
                            "process", log.worker().process(),
                            "ended", log.ended(),
                            "called", log.called(),
                            "completed", log.completed(),
                            "waits_in", waitsIn(log)))
                .toList(),
        "findings",
            comparison.findings().stream()
                .map(
                    finding ->
                        object(
                            "kind", finding.kind().label(),
                            "ranks", List.copyOf(finding.ranks()),
                            "number", finding.number(),
                            "text", finding.text()))
                .toList());
  }

  static String page(List<Comparison> comparisons, List<String> unread) throws IOException {
    Map<String, String> headline = new LinkedHashMap<>();
    List<Table> tables = new ArrayList<>();
    for (Comparison comparison : comparisons) {
      RankLog any = comparison.any();
      headline.put(
          any.name() + " " + any.communicator(),
          comparison.findings().isEmpty()
              ? "no difference"
              : comparison.findings().stream()
                  .map(f -> f.kind().label() + ": " + Comparison.ranks(f.ranks()))
                  .collect(Collectors.joining("; ")));
      tables.add(findings(comparison));
      tables.add(ranks(comparison));
      tables.add(collectives(comparison));
    }
    return new Page(
            "Last operations of the ranks",
            headline,
            List.of(),
            String.join("; ", unread),
            "",
            tables)
        .html();
  }

  private static Table findings(Comparison comparison) {
    return new Table(
        title(comparison),
        "",
        List.of("finding", "ranks", "what is known"),
        comparison.findings().stream()
            .map(
                finding ->
                    List.of(
                        Cell.of(finding.kind().label()),
                        Cell.text(Comparison.ranks(finding.ranks())),
                        Cell.text(finding.text())))
            .toList());
  }

  private static Table ranks(Comparison comparison) {
    return new Table(
        "Ranks of " + comparison.any().communicator(),
        comparison.findings().isEmpty() ? none(comparison) : "",
        List.of("rank", "process", "called", "completed", "waits in"),
        comparison.logs().values().stream()
            .map(
                log ->
                    List.of(
                        Cell.of(String.valueOf(log.rank())),
                        Cell.of(log.process()),
                        Cell.of(String.valueOf(log.called())),
                        Cell.of(completed(log)),
                        Cell.text(waitsIn(log))))
            .toList());
  }

  /** Returns the table of the last collectives: a line for each rank. */
  private static Table collectives(Comparison comparison) {
    long last = comparison.logs().values().stream().mapToLong(RankLog::called).max().orElse(0);
    List<Long> numbers =
        LongStream.rangeClosed(Math.max(1, last - SHOWN + 1), last).boxed().toList();
    List<String> columns = new ArrayList<>(List.of("rank"));
    numbers.forEach(number -> columns.add(String.valueOf(number)));
    List<List<Cell>> rows = new ArrayList<>();
    for (RankLog log : comparison.logs().values()) {
      List<Cell> row = new ArrayList<>(List.of(Cell.of(String.valueOf(log.rank()))));
      numbers.forEach(number -> row.add(cell(comparison, log, number)));
      rows.add(row);
    }
    return new Table(
        "The last collectives",
        "Green: completed. Red: differs from the other ranks, or is missing.",
        columns,
        rows);
  }

  private static Cell cell(Comparison comparison, RankLog log, long number) {
    Call call = log.collectives().get(number);
    boolean differs =
        comparison.findings().stream()
            .anyMatch(
                finding ->
                    finding.number() == number
                        && finding.ranks().contains(log.rank())
                        && finding.kind() != Finding.Kind.NOT_COMPLETED
                        && finding.kind() != Finding.Kind.MESSAGE);
    String text = call == null ? "-" : call.operation() + " " + call.count();
    Table.Kind kind =
        differs
            ? Table.Kind.WRONG
            : call == null
                ? Table.Kind.MISSING
                : call.completed() ? Table.Kind.BEST : Table.Kind.PLAIN;
    return new Cell(text, kind);
  }
}
