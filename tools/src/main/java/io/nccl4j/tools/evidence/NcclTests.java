package io.nccl4j.tools.evidence;

import io.nccl4j.tools.perf.Perf;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.ToDoubleFunction;
import java.util.stream.Stream;

/**
 * Runs the bandwidth command and programs of nccl-tests alternately, with the same flags and
 * library. Every pair runs once before any is repeated, so that each has a measurement.
 */
final class NcclTests {
  static final String VARIABLE = "NCCL_TESTS_DIR";

  private static final int ROUNDS = 3;
  private static final List<String> COLLECTIVES =
      List.of("all_reduce", "all_gather", "reduce_scatter", "alltoall");

  private final Child child;
  private final StepRunner runner;
  private final Map<String, List<Row>> ours = new LinkedHashMap<>();
  private final Map<String, List<Row>> theirs = new LinkedHashMap<>();
  private final List<String> failed = new ArrayList<>();

  private NcclTests(Child child, StepRunner runner) {
    this.child = child;
    this.runner = runner;
  }

  /** One size of a table; times in microseconds, NaN for a missing value. */
  record Row(long size, double time, double inPlaceTime) {}

  static void run(Child child) throws IOException, Child.NotPossible {
    Path work = child.report.toAbsolutePath().getParent();
    try (StepRunner runner = StepRunner.inside(work)) {
      new NcclTests(child, runner).run();
    }
  }

  private void run() throws IOException, Child.NotPossible {
    List<String> collectives =
        (child.quick ? COLLECTIVES.subList(0, 1) : COLLECTIVES)
            .stream().filter(collective -> program(collective).isPresent()).toList();
    if (collectives.isEmpty()) {
      throw new Child.NotPossible(
          VARIABLE + " contains neither all_reduce_perf nor build/all_reduce_perf");
    }
    int pairs = 0;
    long longest = 0;
    for (int round = 1; round <= (child.quick ? 1 : ROUNDS); round++) {
      for (String collective : collectives) {
        long start = child.elapsed().toNanos();
        if (child.left().toNanos() < longest) {
          child.note("round " + round + " of " + collective + " is skipped for lack of time");
        } else if (!failed.contains(collective)
            && measure(collective, theirs, theirCommand(collective))
            && measure(collective, ours, ourCommand(collective))) {
          pairs++;
          child.table(table(collective));
          longest = Math.max(longest, child.elapsed().toNanos() - start);
        }
        child.saveUnfinished(summary());
      }
    }
    child.note(
        ("Medians of 1 to %d runs of each, alternating, with the same flags; %d pairs of runs."
                + " A ratio below 1 means that nccl4j took less time. In-place columns of alltoall,"
                + " which has no in-place form, are a second run out of place for nccl4j.")
            .formatted(ROUNDS, pairs));
    child.end(pairs, failed.isEmpty(), summary());
  }

  private String summary() {
    return "compared "
        + String.join(", ", ours.keySet())
        + (failed.isEmpty() ? "" : "; failed: " + String.join(", ", failed));
  }

  /** Runs a program and adds its rows; returns whether it succeeded. */
  private boolean measure(String collective, Map<String, List<Row>> all, Step.Command command) {
    String name = collective + "-" + command.label();
    Outcome outcome = runner.run(Step.of(name, name, child.left(), command));
    List<Row> rows = parse(outcome.output().getOrDefault(command.label(), ""));
    if (outcome.status() == Outcome.Status.PASSED && !rows.isEmpty()) {
      all.computeIfAbsent(collective, each -> new ArrayList<>()).addAll(rows);
      return true;
    }
    failed.add(collective);
    child.note(name + ": " + (rows.isEmpty() ? "no rows; " : "") + outcome.report().summary());
    return false;
  }

  private Step.Command ourCommand(String collective) {
    List<String> words =
        Java.command(
            Perf.class.getName(), StepRunner.crashFile(child.report.toAbsolutePath().getParent()));
    words.addAll(List.of(collective, "--backend", "nccl", "-g", "" + child.size));
    words.addAll(sizes(child.quick, child.size, false));
    return new Step.Command("nccl4j", words, Map.of("CLASSPATH", Java.classPath()), null);
  }

  /** Returns the size flags of a table, which nccl-tests accepts too. */
  static List<String> sizes(boolean quick, int ranks, boolean fine) {
    if (quick) {
      return List.of("-b", "8", "-e", "4K", "-f", "8", "-n", "2", "-w", "1");
    }
    // A single rank only copies. Several ranks reach full bus bandwidth at some hundred MiB.
    String largest = ranks == 1 ? "128M" : "512M";
    return fine
        ? List.of("-b", "8", "-e", largest, "-f", "2", "-n", "20", "-w", "5")
        : List.of("-b", "1K", "-e", largest, "-f", "8", "-n", "20", "-w", "5");
  }

  private Step.Command theirCommand(String collective) {
    List<String> words = new ArrayList<>();
    words.addAll(List.of(program(collective).orElseThrow().toString(), "-g", "" + child.size));
    words.addAll(sizes(child.quick, child.size, false));
    return new Step.Command("nccl-tests", words, environment(), null);
  }

  private Optional<Path> program(String collective) {
    String name = collective + "_perf";
    return Stream.of(child.binaries.resolve(name), child.binaries.resolve("build").resolve(name))
        .filter(Files::isExecutable)
        .findFirst();
  }

  /** Puts the libraries that nccl4j found first, so that both programs use the same NCCL. */
  private static Map<String, String> environment() {
    String own = System.getenv("LD_LIBRARY_PATH");
    String folders =
        Path.of(System.getProperty("io.nccl4j.nccl.library")).getParent()
            + File.pathSeparator
            + Path.of(System.getProperty("io.nccl4j.cudart.library")).getParent();
    return Map.of("LD_LIBRARY_PATH", own == null ? folders : folders + File.pathSeparator + own);
  }

  /** Parses the rows of the table that both programs print, and skips all other lines. */
  static List<Row> parse(String text) {
    List<Row> rows = new ArrayList<>();
    for (String line : text.lines().map(String::strip).toList()) {
      String[] cells = line.split("\\s+", -1);
      if (cells.length >= 13 && cells[0].matches("[0-9]+") && cells[1].matches("[0-9]+")) {
        rows.add(new Row(Long.parseLong(cells[0]), number(cells[5]), number(cells[9])));
      }
    }
    return List.copyOf(rows);
  }

  private static double number(String cell) {
    return cell.matches("[0-9.eE+-]+") ? Double.parseDouble(cell) : Double.NaN;
  }

  private Table table(String collective) {
    List<List<Object>> rows = new ArrayList<>();
    // Their sizes of a slice may be rounded differently.
    Set<Long> both = new LinkedHashSet<>(sizes(ours, collective));
    both.retainAll(sizes(theirs, collective));
    for (long size : both) {
      List<Object> row = new ArrayList<>(List.of(size));
      addTimes(row, collective, size, Row::time);
      addTimes(row, collective, size, Row::inPlaceTime);
      rows.add(row);
    }
    return new Table(
        collective + ", float, bytes, microseconds",
        List.of(
            "size",
            "nccl4j",
            "nccl-tests",
            "ratio",
            "nccl4j in-place",
            "nccl-tests in-place",
            "ratio in-place"),
        rows);
  }

  private static List<Long> sizes(Map<String, List<Row>> all, String collective) {
    return all.get(collective).stream().map(Row::size).toList();
  }

  private void addTimes(
      List<Object> row, String collective, long size, ToDoubleFunction<Row> time) {
    double own = median(ours.get(collective), size, time);
    double other = median(theirs.get(collective), size, time);
    row.add(cell(own));
    row.add(cell(other));
    row.add(own > 0 && other > 0 ? Table.rounded(own / other, 3) : "");
  }

  /** JSON has no NaN. */
  private static Object cell(double value) {
    return Double.isNaN(value) ? "" : value;
  }

  private static double median(List<Row> rows, long size, ToDoubleFunction<Row> time) {
    return median(rows.stream().filter(row -> row.size == size).mapToDouble(time).toArray());
  }

  static double median(double... values) {
    double[] sorted = values.clone();
    Arrays.sort(sorted);
    int middle = sorted.length / 2;
    return sorted.length % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  }
}
