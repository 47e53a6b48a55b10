package io.nccl4j.tools.perf.report;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.browser.HeadlessBrowser;
import io.nccl4j.fixtures.browser.HeadlessBrowser.Visit;
import io.nccl4j.tools.cli.Commands;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Earlier runs are compared, from their files alone. */
class PerfReportTest {
  @TempDir Path folder;

  private final ByteArrayOutputStream out = new ByteArrayOutputStream();
  private final ByteArrayOutputStream err = new ByteArrayOutputStream();

  private int run(String... args) {
    return PerfReport.run(
        new PrintStream(out, true, StandardCharsets.UTF_8),
        new PrintStream(err, true, StandardCharsets.UTF_8),
        args);
  }

  private String file(String name) {
    return folder.resolve(name).toString();
  }

  /** Writes a result with one row per size. */
  private Path result(String name, String device, double micros, long wrong, long... sizes)
      throws IOException {
    StringBuilder rows = new StringBuilder();
    for (long size : sizes) {
      rows.append(rows.isEmpty() ? "" : ",")
          .append(
              """
              {"size": %d, "type": "float", "redop": "sum", "root": "    -1",
               "out_of_place": {"time": %s, "alg_bw": 1.0, "bus_bw": 1.5, "nwrong": %d},
               "in_place": null}
              """
                  .formatted(size, micros, wrong));
    }
    return Files.writeString(
        folder.resolve(name),
        """
        {"version": 3, "args": ["all_reduce", "<script>boom()</script>"],
         "config": {"collective": "all_reduce", "backend": "nccl", "iterations": 20, "validation": 1,
                    "NCCL_ALGO": "Ring",
                    "devices": [{"pid": 1, "hostname": "a", "device_info": "%s"},
                                {"pid": 2, "hostname": "a", "device_info": "%s"}]},
         "results": [%s], "out_of_bounds": {"count": %d, "okay": "true"}, "errors": []}
        """
            .formatted(device, device, rows, wrong));
  }

  private static final String PAGE_SUMMARY =
      """
      return [
        document.documentElement.scrollWidth <= innerWidth ? "fits" : "too wide",
        document.querySelector(".warning")?.textContent ?? "no warning",
        ...[...document.querySelectorAll("tr")].map(row => [...row.children].map(cell => cell.textContent).join(" | "))
      ].join("\\n");
      """;

  @Test
  @Tag("slow")
  void twoRunsAreComparedBySize() throws IOException, InterruptedException {
    Path one = result("one.json", "A GPU", 10, 0, 8, 1024);
    Path other = result("other.json", "A GPU", 5, 0, 1024, 1 << 20);
    int status = run(one.toString(), other.toString(), "--html", file("a.html"));
    assertEquals(Commands.OK, status, err::toString);
    assertEquals(List.of(file("a.html")), out.toString(StandardCharsets.UTF_8).lines().toList());
    Visit visit =
        HeadlessBrowser.in(folder)
            .open(folder.resolve("a.html"), "", HeadlessBrowser.PHONE, PAGE_SUMMARY);
    String expected =
        """
        fits
        no warning
        size | one, time (us) | one, busbw (GB/s) | other, time (us) | other, busbw (GB/s) | time against one
        8 B | 10.00 | 1.50 | n/a | n/a | n/a
        1 KiB | 10.00 | 1.50 | 5.00 | 1.50 | 0.50
        1 MiB | n/a | n/a | 5.00 | 1.50 | n/a
         | one | other
        command line | all_reduce <script>boom()</script> | all_reduce <script>boom()</script>
        backend | nccl | nccl
        algorithm | NCCL_ALGO=Ring | NCCL_ALGO=Ring
        ranks | 2 in 2 processes | 2 in 2 processes
        devices | 2 x A GPU | 2 x A GPU
        iterations | 20 | 20
        data | checked, OK | checked, OK""";
    assertEquals(new Visit(expected, List.of(), List.of()), visit);
  }

  @Test
  @Tag("slow")
  void emulatedDevicesAndWrongDataAreWarnedAbout() throws IOException, InterruptedException {
    Path one = result("one.json", "nccl4j stand-in (no GPU)", 10, 3, 8);
    assertEquals(Commands.OK, run(one.toString(), "--label", "mine", "--html", file("a.html")));
    Visit visit =
        HeadlessBrowser.in(folder)
            .open(folder.resolve("a.html"), "", HeadlessBrowser.PHONE, PAGE_SUMMARY);
    List<String> lines = visit.answer().lines().toList();
    assertEquals(
        "Measured on the emulated CUDA of nccl4j's tests, a test fixture in host memory: no time here is NCCL's or a GPU's."
            + " Some data was wrong.",
        lines.get(1));
    assertTrue(
        lines.contains(
            "backend | nccl, on the emulated CUDA of nccl4j's tests: a test fixture, no GPU"),
        visit::answer);
    assertTrue(lines.contains("data | 3 checks found wrong data"), visit::answer);
    assertTrue(lines.contains("8 B | 10.00, 3 wrong | 1.50"), visit::answer);
  }

  private static void addLatency(Path result) throws IOException {
    String latency =
        "\"in_place\": null, \"out_of_place_latency\": {\"operations\": 20, \"min_us\": 1,"
            + " \"p50_us\": 2, \"p90_us\": 3, \"p99_us\": 4, \"max_us\": 5}";
    Files.writeString(result, Files.readString(result).replace("\"in_place\": null", latency));
  }

  /** Adds a second cycle, whose times are longer by a half. */
  private static void addCycle(Path result, String time, String longer) throws IOException {
    String json = Files.readString(result);
    String rows = json.substring(json.indexOf("\"results\": [") + 12, json.indexOf("], \"out_of"));
    String again = rows.replace("\"time\": " + time, "\"time\": " + longer);
    Files.writeString(result, json.replace(rows, rows + "," + again));
  }

  @Test
  @Tag("slow")
  void headlineAndSpreadsAreShown() throws IOException, InterruptedException {
    Path one = result("one.json", "A GPU", 8, 0, 1024, 1 << 20);
    Path near = result("near.json", "A GPU", 12, 0, 1024);
    Path far = result("far.json", "A GPU", 40, 0, 1024);
    Path single = result("single.json", "A GPU", 11, 0, 1024);
    addLatency(one);
    addCycle(one, "8.0", "12.0");
    addCycle(near, "12.0", "18.0");
    addCycle(far, "40.0", "60.0");
    List<String> args = new ArrayList<>();
    for (Path each : List.of(one, near, far, single)) {
      args.add(each.toString());
    }
    args.addAll(List.of("--html", file("a.html")));
    assertEquals(Commands.OK, run(args.toArray(String[]::new)));
    String question =
        """
        return ["#headline div", "section:first-of-type tbody tr"].flatMap(name =>
          [...document.querySelectorAll(name)].map(row => [...row.children].map(cell => cell.textContent).join(" | "))).join("\\n");
        """;
    String expected =
        """
        peak bus bandwidth | 1.50 GB/s at 1 KiB, one, out of place
        p50 at 1 MiB | 2.00 us, one, out of place
        backend | nccl
        ranks | 2 in 2 processes
        machine | 2 x A GPU
        1 KiB | 10.00 | 8.00 to 12.00 | 1.50 | 15.00 | 12.00 to 18.00 | 1.50 | 1.50? | 50.00 | 40.00 to 60.00 | 1.50 | 5.00 | 11.00 | n/a | 1.50 | 1.10?
        1 MiB | 10.00 | 8.00 to 12.00 | 1.50 | n/a | n/a | n/a | n/a | n/a | n/a | n/a | n/a | n/a | n/a | n/a | n/a""";
    assertEquals(
        new Visit(expected, List.of(), List.of()),
        HeadlessBrowser.in(folder)
            .open(folder.resolve("a.html"), "", HeadlessBrowser.PHONE, question));
  }

  @Test
  void manyRunsShowOnePercentile() throws IOException {
    Path one = result("one.json", "A GPU", 10, 0, 8);
    addLatency(one);
    String file = one.toString();
    assertEquals(Commands.OK, run(file, file, file, file, file, "--html", file("a.html")));
    String page = Files.readString(folder.resolve("a.html"));
    assertTrue(page.contains("Latency (p99) of single operations, out of place"), page);
    assertTrue(page.contains("\"one (5)\",\"colour\":4,"), page);
  }

  @Test
  void equallyNamedRunsStayDistinct() throws IOException {
    String one = result("one.json", "A GPU", 10, 0, 8, 16).toString();
    int status = run(one, one, "--label", "same", "--label", "same", "--html", file("a.html"));
    assertEquals(Commands.OK, status, err::toString);
    assertTrue(Files.readString(folder.resolve("a.html")).contains("\"same (2)\""));
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      textBlock =
          """
          ''                              | RESULT.json
          one.json                        | Missing required option: '--html=FILE'
          none.json --html a.html         | none.json: there is no such file
          pom.xml --html a.html           | pom.xml is not a result written by -J: line 1, column 1: Unexpected character ('<' (code 60))
          pom.xml --html a.html --label a --label b | --label is given 2 times for 1 file
          pom.xml --html a.pdf            | 'a.pdf' does not end in .html or .htm
          pom.xml --html none/a.html      | 'none/a.html' cannot be written: there is no folder
          """)
  void invalidArgumentsAreRefused(String arguments, String rule) {
    String[] args = arguments.isEmpty() ? new String[0] : arguments.split(" ");
    assertEquals(Commands.BAD_ARGUMENTS, run(args));
    assertTrue(err.toString(StandardCharsets.UTF_8).contains(rule), err::toString);
    assertEquals("", out.toString(StandardCharsets.UTF_8));
  }

  @Test
  void tooDeeplyNestedJsonIsRefused() throws IOException {
    Path deep = Files.writeString(folder.resolve("deep.json"), "[".repeat(2000));
    assertEquals(Commands.BAD_ARGUMENTS, run(deep.toString(), "--html", file("a.html")));
    String message = err.toString(StandardCharsets.UTF_8);
    assertTrue(
        message.contains(deep + " is not a result written by -J: Document nesting depth"), message);
    assertEquals(1, message.lines().count(), message);
  }

  @Test
  void otherJsonIsRefused() throws IOException {
    Path other = Files.writeString(folder.resolve("other.json"), "{\"results\": []}");
    assertEquals(Commands.BAD_ARGUMENTS, run(other.toString(), "--html", file("a.html")));
    assertTrue(
        err.toString(StandardCharsets.UTF_8).contains("it has no 'results' and 'config'"),
        err::toString);
  }
}
