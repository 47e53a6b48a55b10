package io.nccl4j.benchmarks;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.LocalDate;
import java.time.ZoneOffset;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.stream.Stream;

/** The parts that all reports have in common. */
final class Report {
  private Report() {}

  /** Returns a line that describes the machine and names the date. */
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

  /** Returns the median. */
  static double median(List<Double> numbers) {
    return median(numbers.stream().mapToDouble(Double::doubleValue).toArray());
  }

  /** Returns the median, the minimum and the maximum, such as "0.38 (0.37 to 0.41)". */
  static String spread(List<Double> numbers, int decimals) {
    String number = "%." + decimals + "f";
    return String.format(
        Locale.ROOT,
        number + " (" + number + " to " + number + ")",
        median(numbers),
        Collections.min(numbers),
        Collections.max(numbers));
  }
}
