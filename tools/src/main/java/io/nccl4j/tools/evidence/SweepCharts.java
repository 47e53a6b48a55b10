package io.nccl4j.tools.evidence;

import io.nccl4j.tools.cli.JsonTree;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** Runs {@code scripts/nccl4j sweep}; its table is in the report, its charts on a separate page. */
final class SweepCharts {
  private static final String SWEEP = "io.nccl4j.tools.perf.sweep.Sweep";

  /** The automatic choice, and three algorithms with three protocols each. */
  private static final int CHOICES = 10;

  /** The automatic choice, and one algorithm with three protocols. */
  private static final int QUICK_CHOICES = 4;

  private SweepCharts() {}

  static void run(Child child) throws IOException, InterruptedException {
    Path json = child.report.resolveSibling("sweep.measured.json");
    Duration limit = child.left();
    int choices = child.quick ? QUICK_CHOICES : CHOICES;
    int status = await(start(child, json, limit.dividedBy(choices + 1)), limit);
    if (status != 0 || !Files.exists(json)) {
      throw new IOException("exited with status " + status);
    }
    Map<?, ?> measured = (Map<?, ?>) JsonTree.parse(Files.readString(json));
    List<String> names = new ArrayList<>();
    for (Object each : (List<?>) measured.get("choices")) {
      Map<?, ?> choice = (Map<?, ?>) each;
      names.add((String) choice.get("choice"));
      if (!((String) choice.get("reason")).isEmpty()) {
        child.note(
            "%s: %s: %s"
                .formatted(choice.get("choice"), choice.get("state"), choice.get("reason")));
      }
    }
    Table table = table(measured, names);
    child.table(table);
    child.note("`" + child.page.getFileName() + "` has the charts.");
    child.end(
        table.rows().stream().flatMap(List::stream).filter(Double.class::isInstance).count(),
        true,
        "%d sizes, %d choices".formatted(rows(measured).size(), names.size()));
  }

  /** Returns the exit status; after the time limit, kills the process and its descendants. */
  static int await(Process process, Duration limit) throws IOException, InterruptedException {
    if (!process.waitFor(limit.toMillis(), TimeUnit.MILLISECONDS)) {
      StepRunner.kill(process);
      throw new IOException("did not finish within " + limit.toSeconds() + " s");
    }
    return process.exitValue();
  }

  private static Process start(Child child, Path json, Duration limit) throws IOException {
    List<String> words = Bandwidth.java(child, SWEEP);
    words.addAll(List.of("all_reduce", "--backend", child.backend, "-g", "" + child.size));
    words.addAll(List.of("--rounds", "1", "--limit", "" + Math.max(1, limit.toSeconds())));
    words.addAll(
        child.quick
            ? List.of("-b", "8", "-e", "4K", "-f", "8", "-n", "2", "-w", "1")
            : List.of("-b", "1K", "-e", "256M", "-f", "4", "-n", "20", "-w", "5"));
    if (child.quick) {
      words.addAll(List.of("--algo", "ring"));
    }
    words.addAll(List.of("--html", child.page.toString(), "--json", json.toString()));
    ProcessBuilder builder = new ProcessBuilder(words).inheritIO();
    builder.environment().putAll(Bandwidth.environment(child, "sweep"));
    return builder.start();
  }

  private static List<?> rows(Map<?, ?> measured) {
    return (List<?>) measured.get("sizes");
  }

  private static Table table(Map<?, ?> measured, List<String> choices) {
    List<String> columns = new ArrayList<>(List.of("size", "best", "auto costs, %"));
    columns.addAll(choices);
    List<List<Object>> table = new ArrayList<>();
    for (Object each : rows(measured)) {
      Map<?, ?> size = (Map<?, ?>) each;
      List<Object> row = new ArrayList<>(List.of(size.get("size")));
      row.add(size.get("best") instanceof String best ? best : "");
      row.add(size.get("auto_cost") instanceof Double cost ? Math.round(cost * 100) : "");
      Map<?, ?> times = (Map<?, ?>) size.get("times_us");
      for (String choice : choices) {
        row.add(times.get(choice) instanceof Double time ? Table.rounded(time, 2) : "");
      }
      table.add(row);
    }
    return new Table("all_reduce, float, bytes, microseconds of each choice", columns, table);
  }
}
