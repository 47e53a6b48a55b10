package io.nccl4j.tools.trace;

import io.nccl4j.tools.cli.Count;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;

/** Prints a summary of a timeline. */
final class Summary {
  private static final double NANOS_PER_MILLI = 1e6;
  private static final double GIGA = 1e9;

  private Summary() {}

  static void write(Timeline timeline, PrintStream out) {
    long ranks = timeline.processes().keySet().stream().filter(p -> p.rank() >= 0).count();
    out.printf(
        Locale.ROOT,
        "%s, %s, %.3f s%n",
        Count.of(timeline.sources().size(), "recording"),
        Count.of(ranks, "rank"),
        (timeline.end() - timeline.start()) / 1e9);
    clocks(timeline, out);
    out.println();
    operations(timeline, out);
    out.println();
    overlaps(timeline, out);
  }

  private static void clocks(Timeline timeline, PrintStream out) {
    Map<String, Clocks.Offset> offsets = timeline.clocks().offsets();
    boolean first = true;
    for (Map.Entry<String, Clocks.Offset> entry : offsets.entrySet()) {
      Clocks.Offset offset = entry.getValue();
      if (!first) {
        String host =
            timeline.sources().stream()
                .filter(source -> source.clock().equals(entry.getKey()))
                .findFirst()
                .map(Source::host)
                .orElseThrow();
        if (offset.samples() == 0) {
          out.printf(
              "clock of %s: unchanged; no collective relates it to the other clocks%n", host);
        } else {
          out.printf(
              Locale.ROOT,
              "clock of %s: shifted by %+.3f ms, from the ends of %s (half within %.3f ms)%n",
              host,
              offset.nanos() / NANOS_PER_MILLI,
              Count.of(offset.samples(), "collective"),
              offset.spread() / NANOS_PER_MILLI);
        }
      }
      first = false;
    }
  }

  private static void operations(Timeline timeline, PrintStream out) {
    Map<String, List<TraceSpan>> byName = new TreeMap<>();
    for (TraceSpan span : timeline.spans()) {
      if (span.operation() != null) {
        byName.computeIfAbsent(span.name(), name -> new ArrayList<>()).add(span);
      }
    }
    out.printf(
        "%-14s %8s %16s %12s %22s %8s%n",
        "operation", "count", "bytes", "time (ms)", "median busbw (GB/s)", "failed");
    byName.forEach(
        (name, spans) ->
            out.printf(
                Locale.ROOT,
                "%-14s %8d %16d %12.3f %22.3f %8d%n",
                name,
                spans.size(),
                spans.stream().mapToLong(span -> span.operation().bytes()).sum(),
                spans.stream().mapToLong(span -> span.ended() - span.begun()).sum()
                    / NANOS_PER_MILLI,
                medianBusBandwidth(spans) / GIGA,
                spans.stream().filter(span -> span.error() != null).count()));
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

  private static void overlaps(Timeline timeline, PrintStream out) {
    out.printf("%-6s %20s %28s%n", "rank", "communicating (ms)", "overlapping other rows (%)");
    Map<Integer, List<TraceSpan>> spans = timeline.byProcess();
    timeline
        .processes()
        .forEach(
            (process, number) -> {
              Overlap overlap = Overlap.of(spans.getOrDefault(number, List.of()));
              if (overlap.communicating() > 0) {
                out.printf(
                    Locale.ROOT,
                    "%-6d %20.3f %28.1f%n",
                    process.rank(),
                    overlap.communicating() / NANOS_PER_MILLI,
                    100.0 * overlap.besideOthers() / overlap.communicating());
              }
            });
  }
}
