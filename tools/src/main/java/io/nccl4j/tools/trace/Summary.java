package io.nccl4j.tools.trace;

import io.nccl4j.tools.cli.Count;
import io.nccl4j.tools.plots.Table;
import io.nccl4j.tools.plots.Table.Cell;
import java.io.PrintStream;
import java.time.Instant;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Stream;

/** Summarises a timeline. */
final class Summary {
  private static final double NANOS_PER_MILLI = 1e6;
  private static final double GIGA = 1e9;

  private Summary() {}

  static void write(Timeline timeline, PrintStream out) {
    out.printf(
        Locale.ROOT,
        "%s, %s, %.3f s%n",
        Count.of(timeline.sources().size(), "recording"),
        Count.of(ranks(timeline), "rank"),
        seconds(timeline));
    clocks(timeline).forEach(out::println);
    out.println();
    print(operations(timeline), "%-14s %8s %16s %12s %22s %8s%n", out);
    out.println();
    print(overlaps(timeline), "%-6s %20s %28s%n", out);
  }

  private static void print(Table table, String format, PrintStream out) {
    out.printf(format, table.columns().toArray());
    table.rows().forEach(row -> out.printf(format, row.stream().map(Cell::text).toArray()));
  }

  private static long ranks(Timeline timeline) {
    return timeline.processes().keySet().stream().filter(p -> p.rank() >= 0).count();
  }

  private static double seconds(Timeline timeline) {
    return (timeline.end() - timeline.start()) / 1e9;
  }

  /** Returns the extent of a timeline, by name. */
  static Map<String, String> headline(Timeline timeline) {
    Map<String, String> headline = new LinkedHashMap<>();
    headline.put("recordings", "" + timeline.sources().size());
    headline.put("ranks", "" + ranks(timeline));
    headline.put("time", decimals(3, seconds(timeline)) + " s");
    headline.put("started", Instant.ofEpochMilli(timeline.start() / 1_000_000).toString());
    return headline;
  }

  /** Returns a line for each clock but the first, on how it was aligned. */
  static List<String> clocks(Timeline timeline) {
    List<String> lines = new ArrayList<>();
    timeline.clocks().offsets().entrySet().stream()
        .skip(1)
        .forEach(
            entry -> {
              Clocks.Offset offset = entry.getValue();
              String host =
                  timeline.sources().stream()
                      .filter(source -> source.clock().equals(entry.getKey()))
                      .findFirst()
                      .map(Source::host)
                      .orElseThrow();
              lines.add(
                  offset.samples() == 0
                      ? "clock of %s: unchanged; no collective relates it to the other clocks"
                          .formatted(host)
                      : String.format(
                          Locale.ROOT,
                          "clock of %s: shifted by %+.3f ms, from the ends of %s (half within %.3f ms)",
                          host,
                          offset.nanos() / NANOS_PER_MILLI,
                          Count.of(offset.samples(), "collective"),
                          offset.spread() / NANOS_PER_MILLI));
            });
    return lines;
  }

  /** Returns a row for each operation: count, bytes, time and bandwidth. */
  static Table operations(Timeline timeline) {
    Map<String, List<TraceSpan>> byName = new TreeMap<>();
    for (TraceSpan span : timeline.spans()) {
      if (span.operation() != null) {
        byName.computeIfAbsent(span.name(), name -> new ArrayList<>()).add(span);
      }
    }
    List<List<Cell>> rows = new ArrayList<>();
    byName.forEach(
        (name, spans) ->
            rows.add(
                row(
                    name,
                    spans.size(),
                    spans.stream().mapToLong(span -> span.operation().bytes()).sum(),
                    decimals(
                        3,
                        spans.stream().mapToLong(span -> span.ended() - span.begun()).sum()
                            / NANOS_PER_MILLI),
                    decimals(3, medianBusBandwidth(spans) / GIGA),
                    spans.stream().filter(span -> span.error() != null).count())));
    return new Table(
        "Operations",
        "All ranks together.",
        List.of("operation", "count", "bytes", "time (ms)", "median busbw (GB/s)", "failed"),
        rows);
  }

  private static List<Cell> row(Object... values) {
    return Stream.of(values).map(value -> Cell.of(value.toString())).toList();
  }

  private static String decimals(int count, double value) {
    return String.format(Locale.ROOT, "%." + count + "f", value);
  }

  private static double medianBusBandwidth(List<TraceSpan> spans) {
    double[] sorted =
        spans.stream()
            .filter(span -> span.error() == null)
            .mapToDouble(TraceSpan::busBandwidth)
            .sorted()
            .toArray();
    return sorted.length == 0 ? 0 : sorted[sorted.length / 2];
  }

  /** Returns a row for each rank: its time in operations, and the part of it beside other work. */
  static Table overlaps(Timeline timeline) {
    List<List<Cell>> rows = new ArrayList<>();
    Map<Integer, List<TraceSpan>> spans = timeline.byProcess();
    timeline
        .processes()
        .forEach(
            (process, number) -> {
              Overlap overlap = Overlap.of(spans.getOrDefault(number, List.of()));
              if (overlap.communicating() > 0) {
                rows.add(
                    row(
                        process.rank(),
                        decimals(3, overlap.communicating() / NANOS_PER_MILLI),
                        decimals(1, 100.0 * overlap.besideOthers() / overlap.communicating())));
              }
            });
    return new Table(
        "Ranks",
        "Time with at least one operation, and the part of it in which another row was busy too.",
        List.of("rank", "communicating (ms)", "overlapping other rows (%)"),
        rows);
  }
}
