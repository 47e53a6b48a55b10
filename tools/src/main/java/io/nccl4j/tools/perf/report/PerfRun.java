package io.nccl4j.tools.perf.report;

import io.nccl4j.tools.cli.Count;
import java.io.IOException;
import java.nio.charset.CharacterCodingException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.DoubleSummaryStatistics;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.Function;
import java.util.stream.Collectors;

/**
 * One run of the bandwidth command, read from its JSON.
 *
 * @param label the name of the run in a comparison
 * @param collective the measured collective
 * @param emulated whether its devices were those of nccl4j's tests, so that its times mean nothing
 * @param facts the configuration, hardware and versions, by name
 * @param rows the results, in the order of the table
 */
public record PerfRun(
    String label, String collective, boolean emulated, Map<String, String> facts, List<Row> rows) {
  /** The device name of the tests' emulated CUDA. */
  private static final String EMULATED_DEVICE = "nccl4j stand-in";

  /** Without an in-place form; as in nccl-tests, their rows have in-place times all the same. */
  private static final List<String> OUT_OF_PLACE_ONLY = List.of("alltoall", "sendrecv");

  /**
   * One row of the table. The rows of several cycles are merged into one with their means.
   *
   * @param bytes the size
   * @param variant the type, the operator and the root, if there is one
   * @param outOfPlace the measurement with separate buffers, or null
   * @param inPlace the measurement in place, or null
   */
  public record Row(long bytes, String variant, Cell outOfPlace, Cell inPlace) {}

  /**
   * One measurement.
   *
   * @param micros the time of one operation, in microseconds
   * @param busBw the bus bandwidth, in GB/s
   * @param wrong the number of wrong elements, or -1 if the data was not checked
   * @param latency the times of single operations, or null if they were not measured
   * @param low the shortest time of the run's cycles, in microseconds; the time itself if there was
   *     one cycle
   * @param high the longest time of the cycles
   * @param algorithm what NCCL chose, or null if the run did not show it
   */
  public record Cell(
      double micros,
      double busBw,
      long wrong,
      Latency latency,
      double low,
      double high,
      String algorithm) {
    /**
     * {@return whether the spread of this time and that of another one overlap, so that their
     * difference may be chance}
     *
     * @param other the other time
     */
    public boolean overlaps(Cell other) {
      return low <= other.high && other.low <= high;
    }
  }

  /**
   * The times of single operations, in microseconds.
   *
   * @param count the number of operations
   * @param min the shortest time
   * @param p50 the 50th percentile
   * @param p90 the 90th percentile
   * @param p99 the 99th percentile
   * @param max the longest time
   */
  public record Latency(long count, double min, double p50, double p90, double p99, double max) {}

  /**
   * {@return a run read from a file and named after it}
   *
   * @param file the file, written by {@code -J}
   * @throws IOException if it cannot be read; the message names the file
   * @throws IllegalArgumentException if it was not written by {@code -J}
   */
  public static PerfRun read(Path file) throws IOException {
    return read(file, label(file));
  }

  /**
   * {@return a run read from a file}
   *
   * @param file the file, written by {@code -J}
   * @param label the name of the run
   * @throws IOException if it cannot be read; the message names the file
   * @throws IllegalArgumentException if it was not written by {@code -J}
   */
  public static PerfRun read(Path file, String label) throws IOException {
    String text;
    try {
      text = Files.readString(file);
    } catch (NoSuchFileException e) {
      throw new NoSuchFileException(file + ": there is no such file");
    } catch (CharacterCodingException e) {
      throw new IllegalArgumentException(
          file + " is not a result written by -J: it is not in UTF-8", e);
    } catch (IOException e) {
      throw new IOException(file + " cannot be read: " + e.getMessage(), e);
    }
    try {
      return of(text, label);
    } catch (IOException | IllegalArgumentException e) {
      throw new IllegalArgumentException(
          file + " is not a result written by -J: " + firstLine(e.getMessage()), e);
    }
  }

  /** {@return the file's name without .json} */
  private static String label(Path file) {
    return file.getFileName().toString().replaceFirst("\\.json(?=\\.\\d+$|$)", "");
  }

  private static String firstLine(String text) {
    return text == null ? "" : text.lines().findFirst().orElse("");
  }

  /**
   * {@return a run parsed from its JSON}
   *
   * @param text the JSON
   * @param label the name of the run
   * @throws IOException if the text is not JSON
   * @throws IllegalArgumentException if the JSON was not written by {@code -J}
   */
  public static PerfRun of(String text, String label) throws IOException {
    Json json = Json.read(text);
    if (!json.get("results").present() || !json.get("config").present()) {
      throw new IllegalArgumentException("it has no 'results' and 'config'");
    }
    boolean inPlace = !OUT_OF_PLACE_ONLY.contains(collective(json));
    List<Row> rows = new ArrayList<>();
    for (Json row : json.get("results").elements()) {
      rows.add(
          new Row(
              row.get("size").whole(),
              variant(row),
              cell(row, "out_of_place"),
              inPlace ? cell(row, "in_place") : null));
    }
    boolean emulated =
        devices(json).stream()
            .anyMatch(
                device -> device.get("device_info").text().orElse("").contains(EMULATED_DEVICE));
    return new PerfRun(
        label, collective(json), emulated, facts(json, emulated), List.copyOf(merged(rows)));
  }

  private static List<Json> devices(Json json) {
    return json.get("config").get("devices").elements();
  }

  private static String collective(Json json) {
    return json.get("config").get("collective").text().orElse("a collective");
  }

  private static String variant(Json row) {
    String root = row.get("root").text().orElse("-1").strip();
    String op = row.get("redop").text().orElse("none");
    return row.get("type").text().orElse("")
        + (op.equals("none") ? "" : " " + op)
        + (root.startsWith("-") ? "" : " root " + root);
  }

  private static Cell cell(Json row, String placement) {
    Json cell = row.get(placement);
    Json time = cell.get("time").present() ? cell.get("time") : cell.get("cpu_time");
    if (!time.present()) {
      return null;
    }
    Json wrong = cell.get("nwrong");
    Json json = row.get(placement + "_latency");
    Latency latency = json.present() ? latency(json) : null;
    double micros = time.number();
    return new Cell(
        micros,
        cell.get("bus_bw").number(),
        Double.isNaN(wrong.number()) ? -1 : wrong.whole(),
        latency,
        micros,
        micros,
        row.get(placement + "_algorithm").text().orElse(null));
  }

  private static Latency latency(Json json) {
    return new Latency(
        json.get("operations").whole(),
        json.get("min_us").number(),
        json.get("p50_us").number(),
        json.get("p90_us").number(),
        json.get("p99_us").number(),
        json.get("max_us").number());
  }

  /** Merges the rows of several cycles. */
  private static List<Row> merged(List<Row> rows) {
    Map<String, List<Row>> groups =
        rows.stream()
            .collect(
                Collectors.groupingBy(
                    row -> row.bytes + " " + row.variant, LinkedHashMap::new, Collectors.toList()));
    return groups.values().stream()
        .map(
            group ->
                new Row(
                    group.getFirst().bytes,
                    group.getFirst().variant,
                    mean(group, Row::outOfPlace),
                    mean(group, Row::inPlace)))
        .toList();
  }

  private static Cell mean(List<Row> rows, Function<Row, Cell> placement) {
    List<Cell> cells = rows.stream().map(placement).filter(cell -> cell != null).toList();
    if (cells.size() < 2) {
      return cells.isEmpty() ? null : cells.getFirst();
    }
    DoubleSummaryStatistics times = cells.stream().mapToDouble(Cell::micros).summaryStatistics();
    return new Cell(
        times.getAverage(),
        cells.stream().mapToDouble(Cell::busBw).average().orElseThrow(),
        cells.stream().mapToLong(Cell::wrong).max().orElseThrow(),
        cells.getLast().latency,
        times.getMin(),
        times.getMax(),
        algorithms(cells));
  }

  /** Returns what NCCL chose in the cycles, or null if they did not show it. */
  private static String algorithms(List<Cell> cells) {
    List<String> all =
        cells.stream().map(Cell::algorithm).filter(Objects::nonNull).distinct().toList();
    return all.isEmpty() ? null : String.join(", ", all);
  }

  private static Map<String, String> facts(Json json, boolean emulated) {
    Json config = json.get("config");
    Map<String, String> facts = new LinkedHashMap<>();
    facts.put("command line", joined(json.get("args").elements()));
    String backend = config.get("backend").text().orElse("unknown");
    facts.put(
        "backend",
        backend
            + (emulated ? ", on the emulated CUDA of nccl4j's tests: a test fixture, no GPU" : ""));
    facts.put("algorithm", algorithm(config));
    facts.put("ranks", ranks(json));
    facts.put("devices", hardware(json));
    facts.put("host", host(json.get("host")));
    facts.put(
        "versions",
        json.get("versions").fields().entrySet().stream()
            .filter(version -> !version.getKey().endsWith("library"))
            .map(version -> version.getKey() + " " + version.getValue().text().orElse(""))
            .collect(Collectors.joining(", ")));
    facts.put("started", json.get("start_time").text().orElse(""));
    facts.put(
        "iterations",
        config.get("iterations").text().orElse("")
            + config
                .get("warmup_iters")
                .text()
                .map(warmup -> ", after " + warmup + " to warm up")
                .orElse(""));
    facts.put("data", data(json));
    facts.put("errors", joined(json.get("errors").elements()));
    facts.values().removeIf(String::isBlank);
    return facts;
  }

  private static String joined(List<Json> texts) {
    return texts.stream().map(text -> text.text().orElse("")).collect(Collectors.joining(" "));
  }

  private static String algorithm(Json config) {
    List<String> parts = new ArrayList<>();
    config.get("algorithm").text().ifPresent(parts::add);
    config.get("protocol").text().ifPresent(parts::add);
    for (String variable : List.of("NCCL_ALGO", "NCCL_PROTO")) {
      config.get(variable).text().ifPresent(value -> parts.add(variable + "=" + value));
    }
    return String.join(", ", parts);
  }

  private static String ranks(Json json) {
    List<Json> devices = devices(json);
    long processes =
        devices.stream()
            .map(device -> device.get("hostname").text() + " " + device.get("pid").text())
            .distinct()
            .count();
    return devices.size()
        + (processes == 1 ? " in one process" : " in " + processes + " processes");
  }

  private static String hardware(Json json) {
    Map<String, Long> names =
        devices(json).stream()
            .collect(
                Collectors.groupingBy(
                    device -> device.get("device_info").text().orElse("unnamed"),
                    LinkedHashMap::new,
                    Collectors.counting()));
    return names.entrySet().stream()
        .map(name -> name.getValue() + " x " + name.getKey())
        .collect(Collectors.joining(", "));
  }

  private static String host(Json host) {
    List<String> parts = new ArrayList<>();
    host.get("name").text().ifPresent(parts::add);
    host.get("cpus").text().ifPresent(cpus -> parts.add(cpus + " processors"));
    host.get("os").text().ifPresent(parts::add);
    host.get("arch").text().ifPresent(parts::add);
    return String.join(", ", parts);
  }

  private static String data(Json json) {
    if (json.get("config").get("validation").whole() == 0) {
      return "not checked";
    }
    long failed = json.get("out_of_bounds").get("count").whole();
    return failed == 0 ? "checked, OK" : Count.of(failed, "check") + " found wrong data";
  }
}
