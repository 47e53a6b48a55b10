package io.nccl4j.tools.evidence;

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Runs the bandwidth command and collects its tables. */
final class Bandwidth {
  /** The variable that identifies one run of the bandwidth command to its ranks. */
  static final String RUN = "NCCL4J_RUN_ID";

  private static final String PERF = "io.nccl4j.tools.perf.Perf";

  /** Those that training uses first; the last ones are skipped for lack of time. */
  private static final List<String> COLLECTIVES =
      List.of(
          "all_reduce",
          "all_gather",
          "reduce_scatter",
          "alltoall",
          "sendrecv",
          "broadcast",
          "reduce",
          "gather",
          "scatter");

  private static final List<String> FEW_COLLECTIVES = List.of("all_reduce", "sendrecv");

  /** The layout of the ranks. */
  enum Layout {
    /** Threads of one process. */
    ONE_PROCESS,
    /** A process for each rank, started by the bandwidth command. */
    PROCESSES,
    /** A process for each rank, started by a launcher. */
    LAUNCHED
  }

  private Bandwidth() {}

  static void run(Child child) throws IOException, InterruptedException {
    Timetable timetable = new Timetable(child);
    List<String> failed = new ArrayList<>();
    String best = "";
    long wrong = 0;
    int runs = 0;
    for (String collective : child.quick ? FEW_COLLECTIVES : COLLECTIVES) {
      // Ranks of other processes do not know that this one has no time.
      if (child.layout != Layout.LAUNCHED && !timetable.hasTimeFor(collective)) {
        continue;
      }
      List<String> sizes = sizes(child, collective.equals("all_reduce"));
      try {
        PerfTable table =
            PerfTable.of(
                command(child, collective, sizes), environment(child, collective), child.left());
        runs++;
        wrong += table.rows().stream().mapToLong(PerfTable.Row::wrong).filter(n -> n > 0).sum();
        if (printsTable(child)) {
          child.table(table(collective, table));
        }
        if (collective.equals("all_reduce") && !singleRank(child)) {
          best = best(table);
        }
        if (!table.ended().isEmpty()) {
          failed.add(collective);
          child.note(collective + ": " + table.ended());
        } else if (table.rows().isEmpty() && printsTable(child)) {
          failed.add(collective);
          child.note(collective + ": no rows");
        } else if (table.rows().stream().anyMatch(row -> row.wrong() < 0)) {
          failed.add(collective);
          child.note(collective + ": not checked");
        }
      } catch (IOException e) {
        failed.add(collective);
        child.note(collective + ": " + e.getMessage());
      }
      timetable.done();
      child.saveUnfinished("tables up to " + collective);
    }
    child.note(
        singleRank(child)
            ? "Measured by `scripts/nccl4j perf` with 1 rank: no data leaves the GPU, out-of-place is a"
                + " copy, in-place may do nothing, and bus bandwidth has no meaning."
            : "Measured by `scripts/nccl4j perf` with a rank for each GPU.");
    child.note("The data of every row was checked.");
    child.end(
        runs,
        failed.isEmpty() && wrong == 0,
        best
            + wrong
            + " wrong elements"
            + (failed.isEmpty() ? "" : "; failed: " + String.join(", ", failed)));
  }

  private static boolean singleRank(Child child) {
    return child.size == 1 && child.layout == Layout.ONE_PROCESS;
  }

  /** Returns whether this process prints the table, as only process 0 does. */
  private static boolean printsTable(Child child) {
    return child.layout != Layout.LAUNCHED || child.rank == 0;
  }

  private static String best(PerfTable table) {
    return table.rows().stream()
        .filter(row -> row.busbw() > 0)
        .max(Comparator.comparingDouble(PerfTable.Row::busbw))
        .map(
            row ->
                "all_reduce reaches %s GB/s bus bandwidth; "
                    .formatted(Table.rounded(row.busbw(), 2)))
        .orElse("");
  }

  /** Measures the runs of a step, and skips runs that would not finish in time. */
  static final class Timetable {
    private final Child child;
    private Duration before;
    private Duration longest = Duration.ZERO;

    Timetable(Child child) {
      this.child = child;
      this.before = child.elapsed();
    }

    /**
     * Returns whether a run as long as the longest so far would finish in time; if not, adds a
     * note.
     */
    boolean hasTimeFor(String what) {
      before = child.elapsed();
      boolean enough = child.left().compareTo(longest) >= 0;
      if (!enough) {
        child.note(what + " is skipped for lack of time");
      }
      return enough;
    }

    void done() {
      Duration taken = child.elapsed().minus(before);
      longest = taken.compareTo(longest) > 0 ? taken : longest;
    }
  }

  /** Returns the size flags of a table, which nccl-tests accepts too. */
  static List<String> sizes(Child child, boolean fine) {
    if (child.quick) {
      return List.of("-b", "8", "-e", "4K", "-f", "8", "-n", "2", "-w", "1");
    }
    // A single rank only copies. Several ranks reach full bus bandwidth at some hundred MiB.
    String largest = singleRank(child) ? "128M" : "512M";
    return fine
        ? List.of("-b", "8", "-e", largest, "-f", "2", "-n", "20", "-w", "5")
        : List.of("-b", "1K", "-e", largest, "-f", "8", "-n", "20", "-w", "5");
  }

  static List<String> command(Child child, String collective, List<String> sizes) {
    List<String> words = java(child, PERF);
    words.addAll(List.of(collective, "--backend", child.backend));
    words.addAll(
        switch (child.layout) {
          case ONE_PROCESS, LAUNCHED -> List.of("-g", "" + child.size);
          case PROCESSES -> List.of("--procs", "" + child.size, "-g", "1");
        });
    words.addAll(sizes);
    return words;
  }

  /** Returns the start of a command line, with the libraries that the first step found. */
  static List<String> java(Child child, String main) {
    return java(child, main, List.of());
  }

  /** Returns the start of a command line, with additional JVM flags. */
  static List<String> java(Child child, String main, List<String> more) {
    List<String> flags = new ArrayList<>(more);
    for (String library : List.of("io.nccl4j.nccl.library", "io.nccl4j.cudart.library")) {
      if (System.getProperty(library) != null) {
        flags.add("-D" + library + "=" + System.getProperty(library));
      }
    }
    flags.add(StepRunner.crashFile(child.report.toAbsolutePath().getParent()));
    return Java.command(main, flags.toArray(String[]::new));
  }

  static Map<String, String> environment(Child child, String collective) {
    Map<String, String> variables = new LinkedHashMap<>();
    variables.put("CLASSPATH", Java.classPath());
    if (child.layout == Layout.LAUNCHED) {
      variables.put(RUN, System.getenv().getOrDefault(RUN, "") + " " + collective);
    }
    return variables;
  }

  private static Table table(String collective, PerfTable measured) {
    List<List<Object>> rows = new ArrayList<>();
    for (PerfTable.Row row : measured.rows()) {
      rows.add(
          List.of(
              row.size(),
              cell(row.time()),
              cell(row.algbw()),
              cell(row.busbw()),
              cell(row.inPlaceTime()),
              cell(row.inPlaceAlgbw()),
              cell(row.inPlaceBusbw()),
              row.wrong()));
    }
    return new Table(
        collective + ", float, bytes, microseconds, GB/s",
        List.of(
            "size",
            "time",
            "algbw",
            "busbw",
            "time in-place",
            "algbw in-place",
            "busbw in-place",
            "wrong"),
        rows);
  }

  /** JSON has no NaN. */
  static Object cell(double value) {
    return Double.isNaN(value) ? "" : value;
  }
}
