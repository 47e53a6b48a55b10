package io.nccl4j.examples.evidence;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.ToDoubleFunction;
import java.util.stream.Stream;

/** The bandwidth command and a program of nccl-tests in turn, with the same flags and library. */
final class NcclTests {
  static final String VARIABLE = "NCCL_TESTS_DIR";

  private static final int ROUNDS = 3;
  private static final List<String> COLLECTIVES =
      List.of("all_reduce", "all_gather", "reduce_scatter", "broadcast");

  private NcclTests() {}

  static void run(Child child) throws IOException, InterruptedException, Child.NotPossible {
    Map<String, String> environment = environment();
    List<String> done = new ArrayList<>();
    for (String collective : child.quick ? COLLECTIVES.subList(0, 1) : COLLECTIVES) {
      Path program = program(child.binaries, collective);
      if (!done.isEmpty() && child.left().toSeconds() < 15) {
        child.note(collective + " is left out, for lack of time");
        continue;
      }
      List<PerfTable> theirs = new ArrayList<>();
      List<PerfTable> ours = new ArrayList<>();
      List<String> flags = Bandwidth.sizes(child, 32, 4);
      for (int round = 0; round < (child.quick ? 1 : ROUNDS); round++) {
        List<String> command = new ArrayList<>(List.of(program.toString()));
        command.addAll(flags);
        theirs.add(PerfTable.of(command, environment, child.left()));
        ours.add(
            PerfTable.of(
                Bandwidth.command(child, collective, flags),
                Bandwidth.environment(),
                child.left()));
      }
      child.table(table(collective, ours, theirs));
      done.add(collective);
      child.saveUnfinished("compared " + String.join(", ", done));
    }
    child.note(
        "Medians of "
            + (child.quick ? 1 : ROUNDS)
            + " runs of each, in turn, with the same flags. A ratio below 1 means that nccl4j took"
            + " less time.");
    child.end(Report.Verdict.PASSED, "compared " + String.join(", ", done));
  }

  private static Path program(Path folder, String collective) throws Child.NotPossible {
    String name = collective + "_perf";
    return Stream.of(folder.resolve(name), folder.resolve("build").resolve(name))
        .filter(Files::isExecutable)
        .findFirst()
        .orElseThrow(
            () ->
                new Child.NotPossible(
                    "neither " + name + " nor build/" + name + " is in the folder of " + VARIABLE));
  }

  /** The libraries that nccl4j found come first, so that both measure the same NCCL. */
  private static Map<String, String> environment() {
    String own = System.getenv("LD_LIBRARY_PATH");
    String folders =
        Path.of(System.getProperty("io.nccl4j.nccl.library")).getParent()
            + File.pathSeparator
            + Path.of(System.getProperty("io.nccl4j.cudart.library")).getParent();
    return Map.of("LD_LIBRARY_PATH", own == null ? folders : folders + File.pathSeparator + own);
  }

  private static Table table(String collective, List<PerfTable> ours, List<PerfTable> theirs) {
    Map<Long, Double> own = medians(ours, PerfTable.Row::time);
    Map<Long, Double> ownInPlace = medians(ours, PerfTable.Row::inPlaceTime);
    Map<Long, Double> other = medians(theirs, PerfTable.Row::time);
    Map<Long, Double> otherInPlace = medians(theirs, PerfTable.Row::inPlaceTime);
    List<List<Object>> rows = new ArrayList<>();
    for (Long size : own.keySet()) {
      if (other.containsKey(size)) {
        List<Object> row = new ArrayList<>(List.of(size));
        addRatio(row, own.get(size), other.get(size));
        addRatio(row, ownInPlace.get(size), otherInPlace.get(size));
        rows.add(row);
      }
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

  private static void addRatio(List<Object> row, double ours, double theirs) {
    row.add(Bandwidth.cell(ours));
    row.add(Bandwidth.cell(theirs));
    double ratio = theirs > 0 ? Table.rounded(ours / theirs, 3) : Double.NaN;
    row.add(Bandwidth.cell(ratio));
  }

  private static Map<Long, Double> medians(
      List<PerfTable> tables, ToDoubleFunction<PerfTable.Row> value) {
    Map<Long, List<Double>> bySize = new LinkedHashMap<>();
    for (PerfTable table : tables) {
      for (PerfTable.Row row : table.rows()) {
        bySize.computeIfAbsent(row.size(), size -> new ArrayList<>()).add(value.applyAsDouble(row));
      }
    }
    Map<Long, Double> medians = new LinkedHashMap<>();
    bySize.forEach(
        (size, values) ->
            medians.put(size, median(values.stream().mapToDouble(Double::doubleValue).toArray())));
    return medians;
  }

  static double median(double[] values) {
    double[] sorted = values.clone();
    Arrays.sort(sorted);
    int middle = sorted.length / 2;
    return sorted.length % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  }
}
