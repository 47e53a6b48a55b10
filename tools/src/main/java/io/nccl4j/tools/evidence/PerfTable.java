package io.nccl4j.tools.evidence;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * The table that both the bandwidth command and the programs of nccl-tests print.
 *
 * @param rows one for each size
 * @param ended why there may be fewer rows than sizes; empty if there are not
 */
record PerfTable(List<Row> rows, String ended) {
  private static final int COLUMNS = 13;

  /**
   * One size; times in microseconds, bandwidths in GB/s, NaN for a missing value.
   *
   * @param wrong the number of wrong elements, out-of-place and in-place; -1 if not checked
   */
  record Row(
      long size,
      double time,
      double algbw,
      double busbw,
      double inPlaceTime,
      double inPlaceAlgbw,
      double inPlaceBusbw,
      long wrong) {}

  /** Runs a program that prints such a table, and parses its output up to the time limit. */
  static PerfTable of(List<String> command, Map<String, String> environment, Duration limit)
      throws IOException, InterruptedException {
    // Not a pipe, which child processes of the program could keep open.
    Path output = Files.createTempFile("nccl4j-perf", ".out");
    try {
      ProcessBuilder builder =
          new ProcessBuilder(command)
              .redirectOutput(output.toFile())
              .redirectError(ProcessBuilder.Redirect.INHERIT);
      builder.environment().putAll(environment);
      Process process = builder.start();
      boolean late = !process.waitFor(Math.max(1, limit.toMillis()), TimeUnit.MILLISECONDS);
      if (late) {
        StepRunner.kill(process);
      }
      String text = Files.readString(output, StandardCharsets.ISO_8859_1);
      System.out.print(text);
      String ended = "";
      if (late) {
        ended = "did not finish within " + limit.toSeconds() + " s: " + command(command);
      } else if (process.exitValue() != 0) {
        ended =
            "%s exited with status %d: %s"
                .formatted(command(command), process.exitValue(), last(text));
      }
      return new PerfTable(parse(text), ended);
    } finally {
      Files.deleteIfExists(output);
    }
  }

  /**
   * Returns this table if it is complete.
   *
   * @throws IOException if it is not
   */
  PerfTable whole() throws IOException {
    if (!ended.isEmpty() || rows.isEmpty()) {
      throw new IOException(ended.isEmpty() ? "no rows" : ended);
    }
    return this;
  }

  private static String command(List<String> words) {
    return Path.of(words.getFirst()).getFileName() + " ... " + words.getLast();
  }

  private static String last(String text) {
    return text.lines().filter(line -> !line.isBlank()).reduce((a, b) -> b).orElse("no output");
  }

  /** Parses the rows of an output and skips all other lines. */
  static List<Row> parse(String text) {
    List<Row> rows = new ArrayList<>();
    for (String line : text.lines().map(String::strip).toList()) {
      String[] cells = line.split("\\s+", -1);
      if (cells.length >= COLUMNS && cells[0].matches("[0-9]+") && cells[1].matches("[0-9]+")) {
        rows.add(row(cells));
      }
    }
    return List.copyOf(rows);
  }

  private static Row row(String[] cells) {
    return new Row(
        Long.parseLong(cells[0]),
        number(cells[5]),
        number(cells[6]),
        number(cells[7]),
        number(cells[9]),
        number(cells[10]),
        number(cells[11]),
        wrong(cells[8], cells[12]));
  }

  private static double number(String cell) {
    return cell.matches("[0-9.eE+-]+") ? Double.parseDouble(cell) : Double.NaN;
  }

  private static long wrong(String... cells) {
    long wrong = -1;
    for (String cell : cells) {
      if (cell.matches("[0-9.eE+]+")) {
        wrong = Math.max(0, wrong) + (long) Double.parseDouble(cell);
      }
    }
    return wrong;
  }
}
