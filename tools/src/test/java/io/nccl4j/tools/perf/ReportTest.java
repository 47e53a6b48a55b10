package io.nccl4j.tools.perf;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.browser.HeadlessBrowser;
import io.nccl4j.fixtures.browser.HeadlessBrowser.Visit;
import io.nccl4j.tools.cli.Commands;
import io.nccl4j.tools.perf.report.PerfRun;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** A run and earlier runs are shown as a page. */
class ReportTest {
  /** Returns whether the page fits, its warning, the curves of each chart, and the table sizes. */
  static final String PAGE_SUMMARY =
      """
      return [
        document.documentElement.scrollWidth <= innerWidth ? "fits" : "too wide",
        document.querySelector(".warning")?.textContent ?? "no warning",
        ...[...document.querySelectorAll("figure")].map(figure =>
          [figure.querySelector("figcaption").textContent,
           ...[...figure.querySelectorAll(".curve")].map(curve =>
             curve.dataset.name + " " + curve.querySelectorAll("circle").length)].join(" | ")),
        ...[...document.querySelectorAll("section")].map(section =>
          section.querySelector("h2").textContent + " | " + section.querySelectorAll("tbody tr").length)
      ].join("\\n");
      """;

  @TempDir Path folder;

  private Command run(String... more) {
    List<String> args =
        new ArrayList<>(List.of("all_reduce", "--backend", "reference", "--ranks", "3"));
    args.addAll(List.of("-b", "1K", "-e", "64K", "-f", "4", "-n", "5", "--no-jit-warmup"));
    args.addAll(List.of(more));
    Command command = Command.run(args.toArray(String[]::new));
    assertEquals(Commands.OK, command.status(), command.err());
    return command;
  }

  private String file(String name) {
    return folder.resolve(name).toString();
  }

  private static String points(String title, String... curves) {
    return String.join(
        " | ",
        Stream.concat(Stream.of(title), Stream.of(curves).map(curve -> curve + " 4")).toList());
  }

  @ParameterizedTest
  @Tag("slow")
  @ValueSource(ints = {HeadlessBrowser.PHONE, HeadlessBrowser.DESK})
  void pageShowsEverySizeAndItsPercentiles(int width) throws IOException, InterruptedException {
    run("--html", file("a.html"));
    Visit visit =
        HeadlessBrowser.in(folder).open(folder.resolve("a.html"), "", width, PAGE_SUMMARY);
    String expected =
        String.join(
            "\n",
            "fits",
            "no warning",
            points("Time of one operation", "out of place", "in place"),
            points("Bus bandwidth", "out of place", "in place"),
            points("Latency of single operations, out of place", "p50", "p90", "p99", "max"),
            "Numbers, out of place | 4",
            "Numbers, in place | 4",
            "Latency of single operations, in us | 8",
            "Configuration | 10");
    assertEquals(new Visit(expected, List.of(), List.of()), visit);
  }

  @Test
  @Tag("slow")
  void ringAndTreeAreCompared() throws IOException, InterruptedException {
    run("--algo", "ring", "-J", file("ring.json"));
    run("--algo", "tree", "--compare", file("ring.json"), "--html", file("both.html"));
    Visit visit =
        HeadlessBrowser.in(folder)
            .open(folder.resolve("both.html"), "", HeadlessBrowser.PHONE, PAGE_SUMMARY);
    String[] curves = {
      "ring, out of place", "ring, in place", "this run, out of place", "this run, in place"
    };
    assertTrue(visit.answer().startsWith("fits\n"), visit.answer());
    assertTrue(visit.answer().contains(points("Bus bandwidth", curves)), visit.answer());
    // The earlier run has no percentiles.
    assertTrue(
        visit
            .answer()
            .contains(
                points(
                    "Latency of single operations, out of place",
                    "this run, p50",
                    "this run, p90",
                    "this run, p99",
                    "this run, max")),
        visit.answer());
    assertEquals(List.of(), visit.errors());
    String html = Files.readString(folder.resolve("both.html"));
    assertTrue(html.contains("time against ring"), html);
  }

  @Test
  void jsonOfPageMatchesTable() throws IOException {
    Command command = run("--html", file("a.html"), "-J", file("a.json"));
    PerfRun run = PerfRun.read(folder.resolve("a.json"));
    assertEquals("a", run.label());
    assertEquals(4, run.rows().size());
    for (int i = 0; i < 4; i++) {
      PerfRun.Row row = run.rows().get(i);
      List<String> printed = command.rows().get(i);
      assertEquals(printed.get(0), "" + row.bytes());
      assertEquals("float sum", row.variant());
      assertEquals(Double.parseDouble(printed.get(5)), row.outOfPlace().micros(), 0.51);
      assertEquals(Double.parseDouble(printed.get(11)), row.inPlace().busBw(), 0.0051);
      assertEquals(0, row.inPlace().wrong());
    }
    assertEquals("auto", run.facts().get("algorithm"));
    assertEquals("3 in one process", run.facts().get("ranks"));
    assertEquals("checked, OK", run.facts().get("data"));
    assertEquals("5, after 1 to warm up", run.facts().get("iterations"));
    assertFalse(run.emulated());
  }

  @Test
  void percentilesAreMeasuredOnlyOnRequest() throws IOException {
    run("-J", file("without.json"));
    assertFalse(Files.readString(folder.resolve("without.json")).contains("_latency"));
    run("-J", file("with.json"), "--percentiles");
    for (PerfRun.Row row : PerfRun.read(folder.resolve("with.json")).rows()) {
      for (PerfRun.Cell cell : List.of(row.outOfPlace(), row.inPlace())) {
        PerfRun.Latency latency = cell.latency();
        assertTrue(latency.count() >= 20 && latency.count() <= 1000, latency.toString());
        assertTrue(
            latency.min() > 0
                && latency.min() <= latency.p50()
                && latency.p50() <= latency.p90()
                && latency.p90() <= latency.p99()
                && latency.p99() <= latency.max(),
            latency.toString());
      }
    }
  }

  @Test
  @Tag("slow")
  void severalOperatorsAreSeveralCurves() throws IOException, InterruptedException {
    // A graph has no percentiles, which would take longer than the rest.
    run("-o", "all", "-G", "1", "--html", file("a.html"), "-N", "2");
    Visit visit =
        HeadlessBrowser.in(folder)
            .open(folder.resolve("a.html"), "", HeadlessBrowser.DESK, PAGE_SUMMARY);
    String[] operators =
        Stream.of("sum", "prod", "max", "min", "avg", "mulsum")
            .map(name -> "float " + name)
            .toArray(String[]::new);
    for (String title :
        List.of("Time of one operation, out of place", "Bus bandwidth, out of place")) {
      assertTrue(visit.answer().contains(points(title, operators)), visit.answer());
    }
    assertEquals(List.of(), visit.errors());
  }

  @Test
  void percentilesWorkWithThreadsAndGroups() throws IOException {
    run("-J", file("t.json"), "--percentiles", "-t", "3", "-m", "2");
    assertEquals(4, PerfRun.read(folder.resolve("t.json")).rows().size());
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      textBlock =
          """
          --html none/a.html      | --html: 'none/a.html' cannot be written: there is no folder
          --html a.txt            | --html: 'a.txt' does not end in .html or .htm
          --compare a.json        | --compare needs --html
          --percentiles           | --percentiles needs -J or --html
          --html a.html -N 0      | -N is 0, so the run never ends
          --percentiles -G 1 -J a.json | -G must be 0
          --html a.html --compare none.json | --compare: none.json: there is no such file
          --html a.html --compare pom.xml | --compare: pom.xml is not a result written by -J
          """)
  void invalidArgumentsAreRefusedBeforeAnyRun(String arguments, String rule) {
    List<String> args =
        new ArrayList<>(List.of("all_reduce", "--backend", "reference", "-b", "8", "-e", "8"));
    args.addAll(List.of(arguments.split(" ")));
    Command command = Command.run(args.toArray(String[]::new));
    assertEquals(Commands.BAD_ARGUMENTS, command.status(), command.err());
    assertTrue(command.err().contains(rule), command.err());
    assertEquals(1, command.errors().size(), command.err());
    assertEquals(List.of(), command.rows());
  }
}
