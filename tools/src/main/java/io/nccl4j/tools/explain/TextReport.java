package io.nccl4j.tools.explain;

import io.nccl4j.tools.cli.Count;
import java.io.PrintStream;
import java.util.Locale;

/** Prints an explanation as text. */
final class TextReport {
  private final Explanation explanation;
  private final PrintStream out;

  private TextReport(Explanation explanation, PrintStream out) {
    this.explanation = explanation;
    this.out = out;
  }

  /** Prints an explanation. */
  static void write(Explanation explanation, PrintStream out) {
    TextReport report = new TextReport(explanation, out);
    report.title();
    explanation.traces().forEach(report::trace);
    report.bytes();
  }

  private void title() {
    out.printf(
        Locale.ROOT,
        "all_reduce, %s, %s, %,d bytes each (%,d float32)%n",
        explanation.algorithm().name().toLowerCase(Locale.ROOT),
        Count.of(explanation.schedule().ranks(), "rank"),
        explanation.bytes(),
        explanation.schedule().count());
  }

  private void trace(ChannelTrace trace) {
    long begin = explanation.schedule().begin(trace.channel());
    long end = explanation.schedule().end(trace.channel());
    out.printf(
        Locale.ROOT,
        "%n%s: elements %,d to %,d; %s%n",
        explanation.name(trace),
        begin,
        end - 1,
        trace.shape());
    if (trace.frames().isEmpty()) {
      out.println("  nothing moves: a single rank already has the result");
    }
    for (int i = 0; i < trace.frames().size(); i++) {
      Frame frame = trace.frames().get(i);
      out.printf("%n  %s%n", explanation.name(frame));
      frame.moves().forEach(move -> out.println("    " + move.sentence(!explanation.toy())));
      if (explanation.toy()) {
        holdings(trace.holdings(i));
      }
    }
  }

  /** Prints the values of all ranks in aligned columns. */
  private void holdings(String[][] values) {
    int[] widths = new int[values[0].length];
    for (int chunk = 0; chunk < widths.length; chunk++) {
      widths[chunk] = ("chunk " + chunk).length();
      for (String[] row : values) {
        widths[chunk] = Math.max(widths[chunk], row[chunk].length());
      }
    }
    StringBuilder head = new StringBuilder("      holds   ");
    for (int chunk = 0; chunk < widths.length; chunk++) {
      head.append("  ").append(padded("chunk " + chunk, widths[chunk]));
    }
    out.println(head.toString().stripTrailing());
    for (int rank = 0; rank < values.length; rank++) {
      StringBuilder line = new StringBuilder("      " + padded("rank " + rank, 8));
      for (int chunk = 0; chunk < widths.length; chunk++) {
        line.append("  ").append(padded(values[rank][chunk], widths[chunk]));
      }
      out.println(line.toString().stripTrailing());
    }
  }

  private static String padded(String text, int width) {
    return text + " ".repeat(width - text.length());
  }

  private void bytes() {
    int ranks = explanation.schedule().ranks();
    out.printf(
        Locale.ROOT,
        "%nbytes sent, and their ratio to the data; 2(n-1)/n is %.3f%n",
        2.0 * (ranks - 1) / ranks);
    for (int rank = 0; rank < ranks; rank++) {
      long sent = explanation.schedule().bytesSent(rank);
      out.printf(
          Locale.ROOT,
          "  rank %-3d %,15d  %.3f%n",
          rank,
          sent,
          (double) sent / explanation.bytes());
    }
  }
}
