package io.nccl4j.benchmarks;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.LocalDate;
import java.time.ZoneOffset;
import java.util.Arrays;
import java.util.Locale;
import java.util.stream.Stream;

/** Writes the generated parts of a Markdown page, which are marked by comments. */
final class Page {
  private Page() {}

  /**
   * Replaces the content of a generated part of the page.
   *
   * @throws IllegalArgumentException if the page has no such part
   */
  static void replace(Path page, String part, String content) throws IOException {
    String begin = "<!-- " + part + ": written by scripts/bench -->\n";
    String end = "<!-- end of " + part + " -->";
    String text = Files.readString(page);
    int from = text.indexOf(begin);
    int to = text.indexOf(end);
    if (from < 0 || to < from) {
      throw new IllegalArgumentException(page + " has no part '" + part + "'");
    }
    Files.writeString(
        page, text.substring(0, from + begin.length()) + content + text.substring(to));
  }

  /** Returns a paragraph that describes the machine and names the date. */
  static String machine() throws IOException {
    String load = Files.readString(Path.of("/proc/loadavg")).split(" ", 2)[0];
    return "%s, %d cores, Linux %s, Java %s (%s), %s; load average at the end %s.%n"
        .formatted(
            processor(),
            Runtime.getRuntime().availableProcessors(),
            System.getProperty("os.version"),
            Runtime.version(),
            System.getProperty("java.vendor"),
            LocalDate.now(ZoneOffset.UTC),
            load);
  }

  private static String processor() throws IOException {
    try (Stream<String> lines = Files.lines(Path.of("/proc/cpuinfo"))) {
      return lines
          .filter(line -> line.startsWith("model name"))
          .map(line -> line.substring(line.indexOf(':') + 1).strip())
          .findFirst()
          .orElse(System.getProperty("os.arch"));
    }
  }

  /** Returns the median. */
  static double median(double... numbers) {
    double[] sorted = numbers.clone();
    Arrays.sort(sorted);
    int half = sorted.length / 2;
    return sorted.length % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  }

  /** Returns, for example, "0.57 (goal: at most 0.65, reached)". */
  static String againstGoal(double value, double goal) {
    return String.format(
        Locale.ROOT,
        "%.2f (goal: at most %.2f, %s)",
        value,
        goal,
        value <= goal ? "reached" : "not reached");
  }

  /** Returns, for example, "2.41 (goal 2.3: reached)". */
  static String againstLeast(double value, double goal) {
    return String.format(
        Locale.ROOT, "%.2f (goal %s: %s)", value, goal, value >= goal ? "reached" : "not reached");
  }
}
