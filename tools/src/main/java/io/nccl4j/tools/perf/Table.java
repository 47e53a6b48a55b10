package io.nccl4j.tools.perf;

import java.io.PrintStream;
import java.time.LocalDateTime;
import java.time.ZoneId;
import java.time.format.DateTimeFormatter;
import java.util.List;
import java.util.Locale;

/**
 * Writes the lines of nccl-tests 2.19, column for column, so that its parsers work. Lines other
 * than rows start with {@code #}.
 */
final class Table {
  private static final DateTimeFormatter TIMESTAMP =
      DateTimeFormatter.ofPattern("yyyy-MM-dd HH:mm:ss", Locale.ROOT);

  /** As wide as the longest choice of rings and trees, which has 3 digits of channels. */
  private static final String ALGORITHM = "  %15s";

  private final PrintStream out;
  private final boolean timestamps;
  private Settings settings;
  private Flags flags;

  /**
   * Creates a table.
   *
   * @param timestamps whether each row ends with the time of day; {@code -S}
   */
  Table(PrintStream out, boolean timestamps) {
    this.out = out;
    this.timestamps = timestamps;
  }

  /**
   * Writes the settings, the devices and the column names.
   *
   * @param measured the settings of the run
   * @param minBytes the smallest requested size
   * @param maxBytes the largest requested size, which may exceed the memory
   * @param locations the location of each rank
   */
  void header(
      Settings measured,
      String version,
      long minBytes,
      long maxBytes,
      List<RankLocation> locations) {
    settings = measured;
    flags = measured.flags();
    Settings.Sizes sizes = settings.sizes();
    print("# %s%n", version);
    if (flags.jitWarmup()) {
      print(
          "# JIT warm-up: before each type and operator, until times are stable (--no-jit-warmup)%n");
    }
    print("# Collective test starting: %s%n", flags.collective.program());
    print(
        "# nThread %d nGpus %d minBytes %d maxBytes %d step: %d(%s) warmup iters: %d iters: %d agg iters: %d validation: %d graph: %d unalign: %d%n",
        settings.threads(),
        settings.ranksPerThread(),
        minBytes,
        maxBytes,
        sizes.factor() > 1 ? sizes.factor() : sizes.step(),
        sizes.factor() > 1 ? "factor" : "bytes",
        flags.warmup,
        flags.iterations,
        flags.aggregated,
        flags.checks,
        flags.graphs,
        flags.unalign);
    modes();
    print("#%n# Using devices%n");
    for (int rank = 0; rank < locations.size(); rank++) {
      RankLocation location = locations.get(rank);
      print(
          "#  Rank %2d Group %2d Pid %6d on %10s device %2d [%s] %s%n",
          rank,
          0,
          location.pid(),
          location.host(),
          location.device(),
          location.busId(),
          location.name());
    }
    if (sizes.max() < maxBytes) {
      print("#%n# Reducing maxBytes to %d due to memory limitation%n", sizes.max());
    }
    columns();
  }

  private void modes() {
    switch (flags.blocking()) {
      case NONE -> {}
      case WAIT_AND_BARRIER ->
          print("# Blocking Enabled: wait and barrier after each inner iteration (-m) %n");
      case WAIT -> print("# Blocking Enabled: wait after each inner iteration (-m), no barrier %n");
      case WAIT_AND_UNTIMED_BARRIER ->
          print(
              "# Blocking Enabled: wait and barrier after each outer iteration (-n); time excludes barrier %n");
    }
    if (flags.perIteration()) {
      print("# Per-Iteration Report: event timing; i_* uses max over ranks");
      print(flags.skipped > 0 ? "; summary skips first %d iterations %n" : " %n", flags.skipped);
    }
    if (flags.parallelInit == 1) {
      print("# Parallel Init Enabled: each thread makes its own communicators %n");
    }
    if (!flags.collective.hasInPlace()) {
      print(
          "# %s has no in-place form: those columns are a second run out of place %n",
          flags.collective.label());
    }
  }

  private void columns() {
    String time = flags.cpuTime == 1 ? "cputime" : "time";
    boolean more = flags.perIteration();
    boolean algorithm = flags.showAlgorithm;
    print("#%n# %10s  %12s  %8s  %6s  %6s", "", "", "", "", "");
    print(
        more
            ? "              out-of-place (+ per-iteration)                                in-place (+ per-iteration)%n"
            : algorithm
                ? "           out-of-place                                        in-place%n"
                : "           out-of-place                       in-place          %n");
    print("# %10s  %12s  %8s  %6s  %6s", "size", "count", "type", "redop", "root");
    for (int half = 0; half < 2; half++) {
      print("  %7s  %6s  %6s  %6s", time, "algbw", "busbw", "#wrong");
      print(more ? "  %7s  %7s  %7s  %7s" : "", "i_min", "i_max", "i_p99", "i_cv%");
      print(algorithm ? ALGORITHM : "", "algorithm");
    }
    print(timestamps ? " %19s%n" : " %n", "timestamp");
    print("# %10s  %12s  %8s  %6s  %6s", "(B)", "(elements)", "", "", "");
    for (int half = 0; half < 2; half++) {
      print("  %7s  %6s  %6s  %6s", "(us)", "(GB/s)", "(GB/s)", "");
      print(more ? "  %7s  %7s  %7s  %7s" : "", "(us)", "(us)", "(us)", "(%)");
      print(algorithm ? ALGORITHM : "", "/proto/channels");
    }
    print(timestamps ? " %19s%n" : " %n", "%Y-%m-%d %H:%M:%S");
    out.flush();
  }

  /** Writes one row. */
  void row(Row row) {
    print("%12d  %12d  %8s  %6s  %6d", row.bytes(), row.count(), row.type(), row.op(), row.root());
    cell(row.outOfPlace());
    cell(row.inPlace());
    print(
        timestamps ? "%21s%n" : "%n",
        timestamps ? TIMESTAMP.format(LocalDateTime.now(ZoneId.systemDefault())) : "");
    out.flush();
  }

  private void cell(Row.Cell cell) {
    double seconds = flags.cpuTime == 1 ? cell.cpuSeconds() : cell.seconds();
    print(
        "  %s  %s  %s",
        Text.column(seconds * 1e6, 7), Text.column(cell.algBw(), 6), Text.column(cell.busBw(), 6));
    if (cell.wrong() == Row.UNCHECKED) {
      print("    N/A");
    } else {
      print("  %6s", Text.general((double) cell.wrong()));
    }
    if (cell.iterations() != null) {
      Statistics statistics = Statistics.of(cell.iterations(), flags.skipped);
      print(
          "  %s  %s  %s  %s",
          Text.column(statistics.min() * 1e6, 7),
          Text.column(statistics.max() * 1e6, 7),
          Text.column(statistics.p99() * 1e6, 7),
          Text.column(statistics.variation(), 7));
    }
    if (cell.algorithm() != null) {
      print(ALGORITHM, cell.algorithm());
    }
  }

  /**
   * Writes the summary of all rows.
   *
   * @param failedChecks the number of checks that found wrong data
   * @param averageBusBw the mean of all bus bandwidths, in GB/s
   */
  void footer(int failedChecks, double averageBusBw) {
    print(
        "# %-20s : %d %s%n",
        "Out of bounds values", failedChecks, failedChecks > 0 ? "FAILED" : "OK");
    print("# %-20s : %s %n", "Avg bus bandwidth", Text.general(averageBusBw));
    print("#%n# Collective test concluded: %s%n#%n%n", flags.collective.program());
    out.flush();
  }

  /** Writes a comment line. */
  void note(String line) {
    print("# %s%n", line);
  }

  private void print(String format, Object... arguments) {
    out.printf(Locale.ROOT, format, arguments);
  }
}
