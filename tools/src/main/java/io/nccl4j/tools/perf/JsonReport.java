package io.nccl4j.tools.perf;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.util.DefaultPrettyPrinter;
import java.io.IOException;
import java.io.StringWriter;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.OffsetDateTime;
import java.time.ZoneId;
import java.time.temporal.ChronoUnit;
import java.util.List;
import java.util.Map;

/**
 * Writes a run as JSON, under the names that nccl-tests 2.19 gives things, and with what it took
 * part in it. The environment, which may hold secrets, is not written but for NCCL's choice of an
 * algorithm.
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
   * Takes a file that does not exist yet: the one that is named, or with .0, .1 and so on behind
   * it. It is given back where a signal ends the process before it is written.
   *
   * @throws IOException if none can be written
   */
  static JsonReport to(Path wanted) throws IOException {
    Path file = wanted;
    for (int next = 0; ; next++) {
      try {
        Files.createFile(file);
        JsonReport report = new JsonReport(file);
        Runtime.getRuntime().addShutdownHook(new Thread(report::giveBack, "perf-json"));
        return report;
      } catch (FileAlreadyExistsException e) {
        file = wanted.resolveSibling(wanted.getFileName() + "." + next);
      }
    }
  }

  private void giveBack() {
    if (!written) {
      try {
        Files.deleteIfExists(file);
      } catch (IOException e) {
        System.err.println(file + " is not written and cannot be removed: " + e.getMessage());
      }
    }
  }

  /** Returns a report that is asked for its text alone. */
  static JsonReport withoutFile() {
    return new JsonReport(null);
  }

  /** Returns the file that is written, or null. */
  Path file() {
    return file;
  }

  /** Writes the whole file, where there is one. */
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
   * @param places where each rank is
   * @param errors what went wrong, or nothing
   */
  String text(
      Settings settings,
      List<String> arguments,
      List<Place> places,
      List<Row> rows,
      int failedChecks,
      double averageBusBw,
      List<String> errors)
      throws IOException {
    StringWriter text = new StringWriter();
    try (JsonGenerator json =
        new JsonFactory().createGenerator(text).setPrettyPrinter(new DefaultPrettyPrinter())) {
      json.writeStartObject();
      json.writeNumberField("version", FILE_VERSION);
      json.writeStringField("start_time", start);
      strings(json, "args", arguments);
      versions(json, Versions.of(settings.backend()));
      host(json);
      config(json, settings, places);
      json.writeArrayFieldStart("results");
      for (Row row : rows) {
        row(json, settings, row);
      }
      json.writeEndArray();
      summary(json, failedChecks, averageBusBw);
      strings(json, "errors", errors);
      json.writeStringField("end_time", now());
      json.writeEndObject();
    }
    return text.toString();
  }

  private static void strings(JsonGenerator json, String name, List<String> values)
      throws IOException {
    json.writeArrayFieldStart(name);
    for (String value : values) {
      json.writeString(value);
    }
    json.writeEndArray();
  }

  private static void versions(JsonGenerator json, Map<String, String> versions)
      throws IOException {
    json.writeObjectFieldStart("versions");
    for (Map.Entry<String, String> version : versions.entrySet()) {
      json.writeStringField(version.getKey(), version.getValue());
    }
    json.writeEndObject();
  }

  private static void host(JsonGenerator json) throws IOException {
    json.writeObjectFieldStart("host");
    json.writeStringField("name", Host.name());
    json.writeNumberField("cpus", Runtime.getRuntime().availableProcessors());
    json.writeStringField(
        "os", System.getProperty("os.name") + " " + System.getProperty("os.version"));
    json.writeStringField("arch", System.getProperty("os.arch"));
    json.writeEndObject();
  }

  private static void config(JsonGenerator json, Settings settings, List<Place> places)
      throws IOException {
    json.writeObjectFieldStart("config");
    json.writeStringField("collective", settings.collective().label());
    json.writeStringField("backend", settings.backend().name());
    for (Map.Entry<String, String> choice : settings.choices().entrySet()) {
      json.writeStringField(choice.getKey(), choice.getValue());
    }
    json.writeNumberField("nthreads", settings.threads());
    json.writeNumberField("ngpus", settings.ranksPerThread());
    json.writeNumberField("minimum_bytes", settings.sizes().min());
    json.writeNumberField("maximum_bytes", settings.sizes().max());
    if (settings.sizes().factor() > 1) {
      json.writeNumberField("step_factor", settings.sizes().factor());
    } else {
      json.writeNumberField("step_bytes", settings.sizes().step());
    }
    json.writeNumberField("warmup_iters", settings.warmup());
    json.writeNumberField("iterations", settings.iterations());
    json.writeNumberField("aggregated_iterations", settings.aggregated());
    json.writeNumberField("validation", settings.checks());
    json.writeNumberField("graph", settings.graphLaunches());
    json.writeStringField(
        "blocking_collectives", "" + (settings.blocking() != Settings.Blocking.NONE));
    json.writeStringField("jit_warmup", "" + settings.jitWarmup());
    json.writeStringField("per_iter_timing", "" + settings.perIteration());
    json.writeNumberField("per_iter_skip", settings.skipped());
    json.writeStringField("parallel_init", "" + settings.parallelInit());
    json.writeArrayFieldStart("devices");
    for (int rank = 0; rank < places.size(); rank++) {
      place(json, rank, places.get(rank));
    }
    json.writeEndArray();
    json.writeEndObject();
  }

  private static void place(JsonGenerator json, int rank, Place place) throws IOException {
    json.writeStartObject();
    json.writeNumberField("rank", rank);
    json.writeNumberField("group", 0);
    json.writeNumberField("pid", place.pid());
    json.writeStringField("hostname", place.host());
    json.writeNumberField("device", place.device());
    json.writeStringField("device_hex", place.busId());
    json.writeStringField("device_info", place.name());
    json.writeNumberField("device_memory", place.memoryBytes());
    json.writeEndObject();
  }

  private static void row(JsonGenerator json, Settings settings, Row row) throws IOException {
    json.writeStartObject();
    json.writeNumberField("size", row.bytes());
    json.writeNumberField("count", row.count());
    json.writeStringField("type", row.type());
    json.writeStringField("redop", row.op());
    json.writeStringField("root", "%6d".formatted(row.root()));
    cell(json, settings, "out_of_place", row.outOfPlace());
    cell(json, settings, "in_place", row.inPlace());
    json.writeNumberField("actual_iterations", settings.iterations());
    json.writeStringField("experiment_name", "");
    json.writeEndObject();
  }

  private static void cell(JsonGenerator json, Settings settings, String name, Row.Cell cell)
      throws IOException {
    if (Double.isNaN(cell.seconds())) {
      json.writeNullField(name);
      return;
    }
    json.writeObjectFieldStart(name);
    json.writeNumberField(
        settings.cpuTime() ? "cpu_time" : "time",
        (settings.cpuTime() ? cell.cpuSeconds() : cell.seconds()) * 1e6);
    json.writeNumberField("alg_bw", cell.algBw());
    json.writeNumberField("bus_bw", cell.busBw());
    if (cell.wrong() == Row.UNCHECKED) {
      json.writeNullField("nwrong");
    } else {
      json.writeNumberField("nwrong", cell.wrong());
    }
    json.writeEndObject();
    if (cell.latency() != null) {
      latency(json, name + "_latency", cell.latency());
    }
    if (cell.iterations() != null) {
      iterations(json, name + "_per_iter", settings.skipped(), cell.iterations());
    }
  }

  private static void latency(JsonGenerator json, String name, Percentiles latency)
      throws IOException {
    json.writeObjectFieldStart(name);
    json.writeNumberField("operations", latency.count());
    json.writeNumberField("min_us", latency.min() * 1e6);
    json.writeNumberField("p50_us", latency.p50() * 1e6);
    json.writeNumberField("p90_us", latency.p90() * 1e6);
    json.writeNumberField("p99_us", latency.p99() * 1e6);
    json.writeNumberField("max_us", latency.max() * 1e6);
    json.writeEndObject();
  }

  private static void iterations(JsonGenerator json, String name, int skipped, double[] times)
      throws IOException {
    Statistics statistics = Statistics.of(times, skipped);
    json.writeObjectFieldStart(name);
    json.writeNumberField("skipped_iterations", skipped);
    json.writeNumberField("min_us", statistics.min() * 1e6);
    json.writeNumberField("max_us", statistics.max() * 1e6);
    json.writeNumberField("avg_us", statistics.avg() * 1e6);
    json.writeNumberField("p50_us", statistics.p50() * 1e6);
    json.writeNumberField("p95_us", statistics.p95() * 1e6);
    json.writeNumberField("p99_us", statistics.p99() * 1e6);
    json.writeNumberField("stdev_us", statistics.stdev() * 1e6);
    json.writeNumberField("cv_pct", statistics.variation());
    json.writeArrayFieldStart("times_us");
    for (double time : times) {
      json.writeNumber(time * 1e6);
    }
    json.writeEndArray();
    json.writeEndObject();
  }

  private static void summary(JsonGenerator json, int failedChecks, double averageBusBw)
      throws IOException {
    json.writeObjectFieldStart("out_of_bounds");
    json.writeNumberField("count", failedChecks);
    json.writeStringField("okay", "" + (failedChecks == 0));
    json.writeEndObject();
    json.writeObjectFieldStart("average_bus_bandwidth");
    json.writeNumberField("bandwidth", averageBusBw);
    json.writeStringField("okay", "unchecked");
    json.writeEndObject();
  }

  private static String now() {
    return OffsetDateTime.now(ZoneId.systemDefault()).truncatedTo(ChronoUnit.SECONDS).toString();
  }
}
