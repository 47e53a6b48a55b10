package io.nccl4j.tools.perf;

import static io.nccl4j.tools.cli.JsonTree.object;

import io.nccl4j.tools.cli.JsonTree;
import java.io.IOException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.OffsetDateTime;
import java.time.ZoneId;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/**
 * A run as JSON, with the field names of nccl-tests 2.19, and with versions and host. Of the
 * environment, which may hold secrets, only {@code NCCL_ALGO} and {@code NCCL_PROTO} are written.
 */
final class JsonReport {
  private static final int FILE_VERSION = 3;

  private final Path file;
  private final String start = now();
  private volatile boolean written;

  private JsonReport(Path file) {
    this.file = file;
  }

  /**
   * Creates a new file: the named one or, if that exists, the name with .0, .1 and so on appended.
   * The file is deleted if the process exits before it is written.
   *
   * @throws IOException if no file can be created
   */
  static JsonReport to(Path requested) throws IOException {
    Path file = requested;
    for (int next = 0; ; next++) {
      try {
        Files.createFile(file);
        JsonReport report = new JsonReport(file);
        Runtime.getRuntime().addShutdownHook(new Thread(report::deleteUnlessWritten, "perf-json"));
        return report;
      } catch (FileAlreadyExistsException e) {
        file = requested.resolveSibling(requested.getFileName() + "." + next);
      }
    }
  }

  private void deleteUnlessWritten() {
    if (!written) {
      try {
        Files.deleteIfExists(file);
      } catch (IOException e) {
        System.err.println(file + " is not written and cannot be removed: " + e.getMessage());
      }
    }
  }

  /** Returns a report that writes no file, for its text. */
  static JsonReport withoutFile() {
    return new JsonReport(null);
  }

  /** Returns the file, or null. */
  Path file() {
    return file;
  }

  /** Writes the file, if there is one. */
  void write(String text) throws IOException {
    if (file != null) {
      Files.writeString(file, text);
    }
    written = true;
  }

  /**
   * Returns a run as JSON.
   *
   * @param arguments the command line
   * @param locations the location of each rank
   * @param errors the errors; empty if there were none
   */
  String text(
      Settings settings,
      List<String> arguments,
      List<RankLocation> locations,
      List<Row> rows,
      int failedChecks,
      double averageBusBw,
      List<String> errors) {
    return JsonTree.text(
        object(
            "version", FILE_VERSION,
            "start_time", start,
            "args", arguments,
            "versions", Versions.of(settings.backend()),
            "host", host(),
            "config", config(settings, locations),
            "results", rows.stream().map(row -> row(settings, row)).toList(),
            "out_of_bounds", object("count", failedChecks, "okay", "" + (failedChecks == 0)),
            "average_bus_bandwidth", object("bandwidth", averageBusBw, "okay", "unchecked"),
            "errors", errors,
            "end_time", now()));
  }

  private static Object host() {
    return object(
        "name", Host.name(),
        "cpus", Runtime.getRuntime().availableProcessors(),
        "os", System.getProperty("os.name") + " " + System.getProperty("os.version"),
        "arch", System.getProperty("os.arch"));
  }

  private static Object config(Settings settings, List<RankLocation> locations) {
    Flags flags = settings.flags();
    Map<String, Object> config =
        object(
            "collective", flags.collective.label(),
            "backend", settings.backend().name());
    config.putAll(settings.choices());
    Settings.Sizes sizes = settings.sizes();
    boolean factor = sizes.factor() > 1;
    List<Object> devices = new ArrayList<>();
    locations.forEach(location -> devices.add(device(devices.size(), location)));
    config.putAll(
        object(
            "nthreads", settings.threads(),
            "ngpus", settings.ranksPerThread(),
            "minimum_bytes", sizes.min(),
            "maximum_bytes", sizes.max()));
    config.put(factor ? "step_factor" : "step_bytes", factor ? sizes.factor() : sizes.step());
    config.putAll(
        object(
            "warmup_iters", flags.warmup,
            "iterations", flags.iterations,
            "aggregated_iterations", flags.aggregated,
            "validation", flags.checks,
            "graph", flags.graphs,
            "blocking_collectives", "" + (flags.blocking() != Settings.Blocking.NONE),
            "jit_warmup", "" + flags.jitWarmup(),
            "per_iter_timing", "" + flags.perIteration(),
            "per_iter_skip", flags.skipped,
            "parallel_init", "" + (flags.parallelInit == 1),
            "devices", devices));
    return config;
  }

  private static Object device(int rank, RankLocation location) {
    return object(
        "rank", rank,
        "group", 0,
        "pid", location.pid(),
        "hostname", location.host(),
        "device", location.device(),
        "device_hex", location.busId(),
        "device_info", location.name(),
        "device_memory", location.memoryBytes());
  }

  private static Object row(Settings settings, Row row) {
    Map<String, Object> json =
        object(
            "size", row.bytes(),
            "count", row.count(),
            "type", row.type(),
            "redop", row.op(),
            "root", "%6d".formatted(row.root()));
    put(json, settings, "out_of_place", row.outOfPlace());
    put(json, settings, "in_place", row.inPlace());
    json.put("actual_iterations", settings.flags().iterations);
    json.put("experiment_name", "");
    return json;
  }

  private static void put(Map<String, Object> row, Settings settings, String name, Row.Cell cell) {
    boolean cpu = settings.flags().cpuTime == 1;
    row.put(
        name,
        object(
            cpu ? "cpu_time" : "time",
            (cpu ? cell.cpuSeconds() : cell.seconds()) * 1e6,
            "alg_bw",
            cell.algBw(),
            "bus_bw",
            cell.busBw(),
            "nwrong",
            cell.wrong() == Row.UNCHECKED ? null : cell.wrong()));
    if (cell.algorithm() != null) {
      row.put(name + "_algorithm", cell.algorithm());
    }
    if (cell.latency() != null) {
      row.put(name + "_latency", latency(cell.latency()));
    }
    if (cell.iterations() != null) {
      row.put(name + "_per_iter", iterations(settings.flags().skipped, cell.iterations()));
    }
  }

  private static Object latency(Percentiles latency) {
    return object(
        "operations", latency.count(),
        "min_us", latency.min() * 1e6,
        "p50_us", latency.p50() * 1e6,
        "p90_us", latency.p90() * 1e6,
        "p99_us", latency.p99() * 1e6,
        "max_us", latency.max() * 1e6);
  }

  private static Object iterations(int skipped, double[] times) {
    Statistics statistics = Statistics.of(times, skipped);
    return object(
        "skipped_iterations", skipped,
        "min_us", statistics.min() * 1e6,
        "max_us", statistics.max() * 1e6,
        "avg_us", statistics.avg() * 1e6,
        "p50_us", statistics.p50() * 1e6,
        "p95_us", statistics.p95() * 1e6,
        "p99_us", statistics.p99() * 1e6,
        "stdev_us", statistics.stdev() * 1e6,
        "cv_pct", statistics.variation(),
        "times_us", Arrays.stream(times).mapToObj(time -> time * 1e6).toList());
  }

  private static String now() {
    return OffsetDateTime.now(ZoneId.systemDefault()).truncatedTo(ChronoUnit.SECONDS).toString();
  }
}
