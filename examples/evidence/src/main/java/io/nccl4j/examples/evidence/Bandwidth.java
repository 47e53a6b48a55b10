package io.nccl4j.examples.evidence;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** The bandwidth command's tables of one rank. */
final class Bandwidth {
  private static final String PERF = "io.nccl4j.examples.perf.Perf";
  private static final List<String> COLLECTIVES =
      List.of(
          "all_reduce",
          "all_gather",
          "reduce_scatter",
          "broadcast",
          "reduce",
          "alltoall",
          "gather",
          "scatter",
          "sendrecv");
  private static final List<String> FEW_COLLECTIVES = List.of("all_reduce", "sendrecv");

  private Bandwidth() {}

  static void run(Child child) throws IOException, InterruptedException {
    long wrong = 0;
    List<String> failed = new ArrayList<>();
    for (String collective : child.quick ? FEW_COLLECTIVES : COLLECTIVES) {
      List<String> sizes =
          collective.equals("all_reduce") ? sizes(child, 8, 2) : sizes(child, 64, 8);
      try {
        PerfTable table =
            PerfTable.of(command(child, collective, sizes), environment(), child.left());
        wrong += table.rows().stream().mapToLong(PerfTable.Row::wrong).filter(n -> n > 0).sum();
        child.table(table(collective, table));
      } catch (IOException e) {
        failed.add(collective);
        child.note(collective + ": " + e.getMessage());
      }
      child.saveUnfinished("tables up to " + collective);
    }
    child.note(
        "Measured by `scripts/perf` with 1 rank: nothing leaves the GPU, out-of-place is a copy and"
            + " in-place may be nothing at all. The bus bandwidth of 1 rank is 0 or says no more"
            + " than the other. The data of every row was checked.");
    child.end(
        failed.isEmpty() && wrong == 0 ? Report.Verdict.PASSED : Report.Verdict.FAILED,
        failed.isEmpty()
            ? wrong + " wrong elements"
            : wrong + " wrong elements; failed: " + String.join(", ", failed));
  }

  /** The flags of a table, which nccl-tests knows too. */
  static List<String> sizes(Child child, int smallest, int factor) {
    return child.quick
        ? List.of("-g", "1", "-b", "8", "-e", "4K", "-f", "8", "-n", "2", "-w", "1")
        : List.of(
            "-g", "1", "-b", "" + smallest, "-e", "128M", "-f", "" + factor, "-n", "20", "-w", "5");
  }

  static List<String> command(Child child, String collective, List<String> flags) {
    List<String> words =
        new ArrayList<>(
            Java.command(
                PERF,
                "-Dio.nccl4j.nccl.library=" + System.getProperty("io.nccl4j.nccl.library"),
                "-Dio.nccl4j.cudart.library=" + System.getProperty("io.nccl4j.cudart.library"),
                StepRunner.crashFile(child.report.toAbsolutePath().getParent())));
    words.addAll(List.of(collective, "--backend", "nccl"));
    words.addAll(flags);
    return words;
  }

  static Map<String, String> environment() {
    return Map.of("CLASSPATH", Java.classPath());
  }

  private static Table table(String collective, PerfTable measured) {
    List<List<Object>> rows = new ArrayList<>();
    for (PerfTable.Row row : measured.rows()) {
      rows.add(
          List.of(
              row.size(),
              cell(row.time()),
              cell(row.algbw()),
              cell(row.inPlaceTime()),
              cell(row.inPlaceAlgbw()),
              row.wrong()));
    }
    return new Table(
        collective + ", float, bytes, microseconds, GB/s",
        List.of("size", "time", "algbw", "time in-place", "algbw in-place", "wrong"),
        rows);
  }

  /** JSON has no NaN. */
  static Object cell(double value) {
    return Double.isNaN(value) ? "" : value;
  }
}
