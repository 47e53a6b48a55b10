package io.nccl4j.tools.perf.report;

import io.nccl4j.tools.cli.Count;
import java.io.IOException;
import java.nio.charset.CharacterCodingException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.stream.Collectors;

/**
 * One run of the bandwidth command, as its JSON tells it.
 *
 * @param label what the run is called beside others
 * @param collective what was measured
 * @param standIn whether it ran on the stand-in for NCCL, whose times mean nothing
 * @param facts what ran where and how, by name
 * @param rows what came out, in the order of the table
 */
public record PerfRun(
    String label, String collective, boolean standIn, Map<String, String> facts, List<Row> rows) {
  /** What the stand-in's devices are called. */
  private static final String STAND_IN = "nccl4j stand-in";

  /**
   * One row of the table; rows of several cycles are one, with their means.
   *
   * @param bytes the size
   * @param variant the type, the operator and the root, where there is one
   * @param outOfPlace what was measured with separate buffers, or null
   * @param inPlace what was measured in place, or null
   */
  public record Row(long bytes, String variant, Cell outOfPlace, Cell inPlace) {}

  /**
   * One measurement.
   *
   * @param micros the time of one operation, in microseconds
   * @param busBw the bus bandwidth, in GB/s
   * @param wrong how many elements were wrong, or -1 where that was not checked
   * @param latency the times of single operations, or null where they were not taken
   */
  public record Cell(double micros, double busBw, long wrong, Latency latency) {}

  /**
   * How long single operations took, in microseconds.
   *
   * @param count how many there were
   * @param min the shortest
   * @param p50 half took no longer
   * @param p90 90 in 100 took no longer
   * @param p99 99 in 100 took no longer
   * @param max the longest
   */
  public record Latency(long count, double min, double p50, double p90, double p99, double max) {}

  /**
   * {@return a run that was written to a file, called as the file is}
   *
   * @param file the file, of {@code -J}
   * @throws IOException if it cannot be read; the message names the file
   * @throws IllegalArgumentException if it is no such file
   */
  public static PerfRun read(Path file) throws IOException {
    return read(file, label(file));
  }

  /**
   * {@return a run that was written to a file}
   *
   * @param file the file, of {@code -J}
   * @param label what the run is to be called
   * @throws IOException if it cannot be read; the message names the file
   * @throws IllegalArgumentException if it is no such file
   */
  public static PerfRun read(Path file, String label) throws IOException {
    String text;
    try {
      text = Files.readString(file);
    } catch (NoSuchFileException e) {
      throw new NoSuchFileException(file + ": there is no such file");
    } catch (CharacterCodingException e) {
      throw new IllegalArgumentException(
          file + " is no result that -J has written: it is not in UTF-8", e);
    } catch (IOException e) {
      throw new IOException(file + " cannot be read: " + e.getMessage(), e);
    }
    try {
      return of(text, label);
    } catch (IOException | IllegalArgumentException e) {
      throw new IllegalArgumentException(
          file + " is no result that -J has written: " + firstLine(e.getMessage()), e);
    }
  }

  /** {@return what a run is called whose file has this name} */
  private static String label(Path file) {
    return file.getFileName().toString().replaceFirst("\\.json(?=\\.\\d+$|$)", "");
  }

  private static String firstLine(String text) {
    return text == null ? "" : text.lines().findFirst().orElse("");
  }

  /**
   * {@return a run, given its JSON}
   *
   * @param text the JSON
   * @param label what the run is to be called
   * @throws IOException if it is no JSON
   * @throws IllegalArgumentException if it is that of something else
   */
  public static PerfRun of(String text, String label) throws IOException {
    Json json = Json.read(text);
    if (!json.get("results").present() || !json.get("config").present()) {
      throw new IllegalArgumentException("it has no 'results' and 'config'");
    }
    List<Row> rows = new ArrayList<>();
    for (Json row : json.get("results").elements()) {
      rows.add(
          new Row(
              row.get("size").whole(),
              variant(row),
              cell(row, "out_of_place"),
              cell(row, "in_place")));
    }
    boolean standIn =
        devices(json).stream()
            .anyMatch(device -> device.get("device_info").text().orElse("").contains(STAND_IN));
    return new PerfRun(
        label, collective(json), standIn, facts(json, standIn), List.copyOf(merged(rows)));
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

  private static Cell cell(Json row, String place) {
    Json cell = row.get(place);
    Json time = cell.get("time").present() ? cell.get("time") : cell.get("cpu_time");
    if (!time.present()) {
      return null;
    }
    Json wrong = cell.get("nwrong");
    Json latency = row.get(place + "_latency");
    return new Cell(
        time.number(),
        cell.get("bus_bw").number(),
        Double.isNaN(wrong.number()) ? -1 : wrong.whole(),
        latency.present() ? latency(latency) : null);
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

  /** Makes one row of those of several cycles. */
  private static List<Row> merged(List<Row> rows) {
    Map<String, List<Row>> alike =
        rows.stream()
            .collect(
                Collectors.groupingBy(
                    row -> row.bytes + " " + row.variant, LinkedHashMap::new, Collectors.toList()));
    return alike.values().stream()
        .map(
            same ->
                new Row(
                    same.getFirst().bytes,
                    same.getFirst().variant,
                    mean(same, Row::outOfPlace),
                    mean(same, Row::inPlace)))
        .toList();
  }

  private static Cell mean(List<Row> rows, Function<Row, Cell> place) {
    List<Cell> cells = rows.stream().map(place).filter(cell -> cell != null).toList();
    if (cells.size() < 2) {
      return cells.isEmpty() ? null : cells.getFirst();
    }
    return new Cell(
        cells.stream().mapToDouble(Cell::micros).average().orElseThrow(),
        cells.stream().mapToDouble(Cell::busBw).average().orElseThrow(),
        cells.stream().mapToLong(Cell::wrong).max().orElseThrow(),
        cells.getLast().latency);
  }

  private static Map<String, String> facts(Json json, boolean standIn) {
    Json config = json.get("config");
    Map<String, String> facts = new LinkedHashMap<>();
    facts.put("command line", joined(json.get("args").elements()));
    String backend = config.get("backend").text().orElse("not told");
    facts.put(
        "backend",
        backend + (standIn ? ", on the stand-in for NCCL and CUDA: a test fixture, no GPU" : ""));
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
    List<String> said = new ArrayList<>();
    config.get("algorithm").text().ifPresent(said::add);
    for (String variable : List.of("NCCL_ALGO", "NCCL_PROTO")) {
      config.get(variable).text().ifPresent(value -> said.add(variable + "=" + value));
    }
    return String.join(", ", said);
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
    List<String> said = new ArrayList<>();
    host.get("name").text().ifPresent(said::add);
    host.get("cpus").text().ifPresent(cpus -> said.add(cpus + " processors"));
    host.get("os").text().ifPresent(said::add);
    host.get("arch").text().ifPresent(said::add);
    return String.join(", ", said);
  }

  private static String data(Json json) {
    if (json.get("config").get("validation").whole() == 0) {
      return "not checked";
    }
    long failed = json.get("out_of_bounds").get("count").whole();
    return failed == 0 ? "checked, all right" : Count.of(failed, "check") + " found wrong data";
  }
}
