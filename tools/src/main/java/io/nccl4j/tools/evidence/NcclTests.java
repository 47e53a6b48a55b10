package io.nccl4j.tools.evidence;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.ToDoubleFunction;
import java.util.stream.Stream;

/**
 * Runs the bandwidth command and a program of nccl-tests alternately, with the same flags and
 * library.
 */
final class NcclTests {
  static final String VARIABLE = "NCCL_TESTS_DIR";

  /** The launcher of a program that is built with MPI. */
  static final String MPIRUN = "mpirun";

  private static final int ROUNDS = 3;
  private static final List<String> COLLECTIVES =
      List.of("all_reduce", "all_gather", "reduce_scatter", "alltoall");

  /** The measurements of both programs, a table for each round. */
  private record Pair(List<PerfTable> ours, List<PerfTable> theirs) {}

  private NcclTests() {}

  /** Runs every pair once before any is repeated, so that each has at least one measurement. */
  static void run(Child child) throws IOException, InterruptedException, Child.NotPossible {
    Map<String, Pair> pairs = new LinkedHashMap<>();
    Bandwidth.Timetable timetable = new Bandwidth.Timetable(child);
    Map<String, Table> tables = new LinkedHashMap<>();
    int runs = 0;
    for (int round = 1; round <= (child.quick ? 1 : ROUNDS); round++) {
      for (String collective : child.quick ? COLLECTIVES.subList(0, 1) : COLLECTIVES) {
        if (!timetable.hasTimeFor("round " + round + " of " + collective)) {
          continue;
        }
        List<String> sizes = Bandwidth.sizes(child, false);
        List<String> theirs = theirs(child, program(child.binaries, collective), sizes);
        List<String> ours = Bandwidth.command(child, collective, sizes);
        Pair pair =
            pairs.computeIfAbsent(
                collective, name -> new Pair(new ArrayList<>(), new ArrayList<>()));
        pair.theirs.add(PerfTable.of(theirs, environment(), child.left()).whole());
        pair.ours.add(
            PerfTable.of(ours, Bandwidth.environment(child, collective), child.left()).whole());
        runs++;
        timetable.done();
        tables.put(collective, table(collective, pair.ours, pair.theirs));
        child.table(tables.get(collective));
        child.saveUnfinished("compared " + String.join(", ", pairs.keySet()));
      }
    }
    child.note(
        ("Medians of 1 to %d runs of each, alternating, with the same flags; %d pairs of runs."
                + " A ratio below 1 means that nccl4j took less time. In-place columns of alltoall,"
                + " which has no in-place form, are a second run out of place for nccl4j.")
            .formatted(ROUNDS, runs));
    child.end(
        runs,
        tables.values().stream().noneMatch(table -> table.rows().isEmpty()),
        "compared " + String.join(", ", pairs.keySet()));
  }

  private static List<String> theirs(Child child, Path program, List<String> sizes)
      throws IOException, Child.NotPossible {
    List<String> command = new ArrayList<>();
    if (child.layout == Bandwidth.Layout.PROCESSES) {
      if (!usesMpi(program)) {
        throw new Child.NotPossible(
            program.getFileName() + " is built without MPI; build nccl-tests with MPI=1");
      }
      Path mpirun =
          EvidencePlan.onPath(MPIRUN, System.getenv())
              .orElseThrow(() -> new Child.NotPossible(MPIRUN + " is not on the PATH"));
      command.addAll(List.of(mpirun.toString(), "-n", "" + child.size));
    }
    command.add(program.toString());
    boolean oneProcess = child.layout == Bandwidth.Layout.ONE_PROCESS;
    command.addAll(List.of("-g", oneProcess ? "" + child.size : "1"));
    command.addAll(sizes);
    return command;
  }

  /** Returns whether a program is linked with MPI. */
  private static boolean usesMpi(Path program) throws IOException {
    String bytes = new String(Files.readAllBytes(program), StandardCharsets.ISO_8859_1);
    return bytes.contains("libmpi");
  }

  private static Path program(Path folder, String collective) throws Child.NotPossible {
    String name = collective + "_perf";
    return Stream.of(folder.resolve(name), folder.resolve("build").resolve(name))
        .filter(Files::isExecutable)
        .findFirst()
        .orElseThrow(
            () ->
                new Child.NotPossible(
                    VARIABLE + " contains neither " + name + " nor build/" + name));
  }

  /** Puts the libraries that nccl4j found first, so that both programs use the same NCCL. */
  private static Map<String, String> environment() {
    String own = System.getenv("LD_LIBRARY_PATH");
    String folders =
        Path.of(System.getProperty("io.nccl4j.nccl.library")).getParent()
            + File.pathSeparator
            + Path.of(System.getProperty("io.nccl4j.cudart.library")).getParent();
    return Map.of(
        "LD_LIBRARY_PATH",
        own == null ? folders : folders + File.pathSeparator + own,
        // Open MPI does not run as root, which is usual in containers, unless both are set.
        "OMPI_ALLOW_RUN_AS_ROOT",
        "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
        "1");
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
