package io.nccl4j.tools.perf.sweep;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.browser.HeadlessBrowser;
import io.nccl4j.fixtures.browser.HeadlessBrowser.Visit;
import io.nccl4j.fixtures.programs.StandIn;
import io.nccl4j.tools.cli.Commands;
import io.nccl4j.tools.perf.PerfProgram;
import io.nccl4j.tools.perf.report.Json;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Sweeps with real processes, on the reference backend and on the stand-in for NCCL. */
@Tag("slow")
class SweepTest {
  @TempDir Path folder;

  private final ByteArrayOutputStream out = new ByteArrayOutputStream();
  private final ByteArrayOutputStream err = new ByteArrayOutputStream();

  private int run(Map<String, String> variables, String arguments) {
    return run(variables, PerfProgram.command(), arguments);
  }

  private int run(Map<String, String> variables, List<String> perf, String arguments) {
    Map<String, String> environment = new HashMap<>(System.getenv());
    environment.keySet().removeIf(name -> name.startsWith("NCCL"));
    environment.putAll(variables);
    List<String> args = new ArrayList<>();
    // No test looks at times, so none needs a warm-up.
    for (String argument : (arguments + " --no-jit-warmup").strip().split(" ", -1)) {
      args.add(argument.startsWith("@") ? file(argument.substring(1)) : argument);
    }
    return new Sweep(
            new PrintStream(out, true, StandardCharsets.UTF_8),
            new PrintStream(err, true, StandardCharsets.UTF_8),
            environment,
            perf)
        .run(args.toArray(String[]::new));
  }

  private String file(String name) {
    return folder.resolve(name).toString();
  }

  private List<List<String>> table() {
    return out.toString(StandardCharsets.UTF_8)
        .lines()
        .filter(line -> line.startsWith("  "))
        .map(line -> List.of(line.strip().split(" {2,}")))
        .toList();
  }

  private static final String PAGE_SUMMARY =
      """
      return [
        document.documentElement.scrollWidth <= innerWidth ? "fits" : "too wide",
        document.querySelector(".warning")?.textContent ?? "no warning",
        ...[...document.querySelectorAll("figure")].map(figure =>
          [...figure.querySelectorAll(".curve")].map(curve =>
            curve.dataset.name + " " + curve.querySelectorAll("circle").length).join(" | ")),
        document.querySelectorAll("td.best").length,
        [...new Set([...document.querySelectorAll("td.missing:not(:nth-child(3))")].map(cell => cell.textContent))].join()
      ].join("\\n");
      """;

  @Test
  void referenceIsSwept() throws IOException, InterruptedException {
    String arguments =
        "--backend reference --ranks 3 -b 1K -e 16K -f 4 -n 5 --rounds 2 --html @a.html --csv @a.csv --json @a.json";
    assertEquals(Commands.OK, run(Map.of(), arguments), err::toString);
    List<List<String>> table = table();
    assertEquals(
        List.of("size", "best", "auto costs", "auto", "ring", "tree", "direct"), table.get(0));
    assertEquals(
        List.of("1 KiB", "4 KiB", "16 KiB"),
        table.subList(1, 4).stream().map(List::getFirst).toList());
    Json json = Json.read(Files.readString(folder.resolve("a.json")));
    for (int i = 0; i < 3; i++) {
      Json size = json.get("sizes").elements().get(i);
      Map<String, Json> times = size.get("times_us").fields();
      double quickest =
          List.of("ring", "tree", "direct").stream()
              .mapToDouble(choice -> times.get(choice).number())
              .min()
              .orElseThrow();
      String best = size.get("best").text().orElseThrow();
      assertEquals(quickest, times.get(best).number());
      assertEquals(best, table.get(i + 1).get(1));
      assertEquals(times.get("auto").number() / quickest - 1, size.get("auto_cost").number(), 1e-9);
      assertEquals(
          size.get("auto_cost_may_be_chance").text().orElseThrow().equals("true"),
          table.get(i + 1).get(2).endsWith("?"));
    }
    List<String> csv = Files.readAllLines(folder.resolve("a.csv"));
    assertEquals(1 + 3 * 4, csv.size());
    assertTrue(csv.get(2).startsWith("1024,ring,ring,,ok,"), csv.get(2));
    Visit visit =
        HeadlessBrowser.in(folder)
            .open(folder.resolve("a.html"), "", HeadlessBrowser.PHONE, PAGE_SUMMARY);
    String curves = "auto 3 | ring 3 | tree 3 | direct 3";
    assertEquals(
        new Visit(
            String.join("\n", "fits", "no warning", curves, curves, "3", ""), List.of(), List.of()),
        visit);
    assertEquals(8, err.toString(StandardCharsets.UTF_8).lines().count(), err::toString);
  }

  @Test
  void choicesMissingOnStandInAreNa() throws IOException, InterruptedException {
    Map<String, String> standIn = StandIn.build();
    String arguments =
        "-g 2 -b 1K -e 4K -f 4 -n 2 --rounds 1 --algo ring,nvls --proto simple,ll --html @a.html --csv @a.csv --json @a.json";
    assertEquals(Commands.OK, run(standIn, arguments), err::toString);
    assertTrue(out.toString(StandardCharsets.UTF_8).contains("Measured on the emulated CUDA"));
    assertEquals(
        List.of(
            "size",
            "best",
            "auto costs",
            "auto chose",
            "auto",
            "ring simple",
            "ring ll",
            "nvls simple",
            "nvls ll"),
        table().get(0));
    assertEquals("TREE/LL/2", table().get(1).get(3));
    assertEquals(List.of("n/a", "n/a"), table().get(1).subList(7, 9));
    Json json = Json.read(Files.readString(folder.resolve("a.json")));
    assertEquals("true", json.get("emulated").text().orElseThrow());
    assertEquals(
        "TREE/LL/2",
        json.get("sizes").elements().getFirst().get("auto_chose").text().orElseThrow());
    Json nvls = json.get("choices").elements().get(3);
    assertEquals("n/a", nvls.get("state").text().orElseThrow());
    assertTrue(
        nvls.get("reason")
            .text()
            .orElseThrow()
            .contains("NCCL cannot use nvls with simple for all_reduce of 1024 bytes"),
        nvls.get("reason").text()::toString);
    assertEquals(
        List.of("--algo", "nvls", "--proto", "simple"),
        nvls.get("arguments").elements().stream().map(word -> word.text().orElseThrow()).toList());
    Visit visit =
        HeadlessBrowser.in(folder)
            .open(folder.resolve("a.html"), "", HeadlessBrowser.DESK, PAGE_SUMMARY);
    String curves = "auto 2 | ring simple 2 | ring ll 2";
    String warning =
        "Measured on the emulated CUDA of nccl4j's tests, a test fixture in host memory: no time here is NCCL's or a GPU's.";
    assertEquals(
        new Visit(
            String.join("\n", "fits", warning, curves, curves, "2", "n/a"), List.of(), List.of()),
        visit);
  }

  @Test
  void sweepRunsWhereNcclCannotBeAskedWhatItChooses() throws IOException, InterruptedException {
    Map<String, String> standIn = StandIn.build();
    standIn.put("NCCL_PROFILER_PLUGIN", "/opt/plugin.so");
    String arguments = "-g 2 -b 1K -e 1K -n 2 --rounds 1 --algo ring --proto ll";
    assertEquals(Commands.OK, run(standIn, arguments), err::toString);
    assertEquals("n/a", table().get(1).get(3));
    assertTrue(
        out.toString(StandardCharsets.UTF_8)
            .contains("auto chose: failed: a Profiler cannot be installed"),
        out::toString);
  }

  @Test
  void failedChoiceIsReportedAndOthersRun() throws IOException, InterruptedException {
    Map<String, String> standIn = StandIn.build();
    standIn.put("NCCL4J_STANDIN_FAIL", "ncclAllReduce=3@9");
    String arguments =
        "--backend nccl -g 2 -b 1K -e 1K --rounds 1 --algo ring --proto ll --json @a.json";
    assertEquals(Commands.FAILED, run(standIn, arguments), err::toString);
    assertTrue(
        err.toString(StandardCharsets.UTF_8).endsWith("sweep: nothing could be measured\n"),
        err::toString);
    List<Json> choices =
        Json.read(Files.readString(folder.resolve("a.json"))).get("choices").elements();
    assertEquals(2, choices.size());
    for (Json choice : choices) {
      assertEquals("failed", choice.get("state").text().orElseThrow());
      assertTrue(
          choice.get("reason").text().orElseThrow().contains("INTERNAL_ERROR"),
          choice.get("reason").text()::toString);
    }
  }

  @Test
  void choiceThatTimesOutIsTerminated() throws IOException {
    String arguments =
        "--backend reference --ranks 2 -b 64M -e 64M -n 1000000 --algo ring --rounds 2 --limit 2 --json @a.json";
    assertEquals(Commands.FAILED, run(Map.of(), arguments), err::toString);
    Json json = Json.read(Files.readString(folder.resolve("a.json")));
    for (Json choice : json.get("choices").elements()) {
      assertEquals("timed out after 2 s", choice.get("reason").text().orElseThrow());
    }
    // A failed choice is not tried again.
    assertEquals(
        List.of("sweep: auto ...", "sweep: ring, round 1 of 2 ..."),
        err.toString(StandardCharsets.UTF_8).lines().toList().subList(0, 2));
    assertEquals(3, err.toString(StandardCharsets.UTF_8).lines().count(), err::toString);
    assertFalse(
        ProcessHandle.current().descendants().anyMatch(SweepTest::measures),
        "a process is left behind");
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      textBlock =
          """
          {"config":  | exit 1        | \uFFFD is what a library said
          {"config":  | exit 0        | is not a result written by -J: line 1, column 11: Unexpected end
          \\377       | exit 0        | is not a result written by -J: it is not in UTF-8
          {"config":  | exec sleep 60 | timed out after 5 s with an incomplete result
          """)
  void incompleteResultFailsOnlyItsChoice(String json, String end, String reason)
      throws IOException {
    String script =
        "while [ \"$1\" != -J ]; do shift; done; printf '"
            + json
            + "' >\"$2\"; printf '\\377 is what a library said\\n' >&2; "
            + end;
    List<String> perf = List.of("sh", "-c", script, "perf");
    String arguments = "--backend reference --algo ring --rounds 1 --limit 5 --json @a.json";
    assertEquals(Commands.FAILED, run(Map.of(), perf, arguments), err::toString);
    List<Json> choices =
        Json.read(Files.readString(folder.resolve("a.json"))).get("choices").elements();
    assertEquals(2, choices.size());
    for (Json choice : choices) {
      assertEquals("failed", choice.get("state").text().orElseThrow());
      String actual = choice.get("reason").text().orElseThrow();
      assertTrue(actual.contains(reason), actual);
    }
  }

  @Test
  void reasonIsReportedIfNothingWasMeasured() {
    String script =
        "while [ \"$1\" != -J ]; do shift; done; mkdir \"$2.d\"; echo kept >\"$2.d/kept\";"
            + " echo 'no ranks today' >&2; exit 1";
    List<String> perf = List.of("sh", "-c", script, "perf");
    assertEquals(Commands.FAILED, run(Map.of(), perf, "--rounds 1"));
    List<String> lines = err.toString(StandardCharsets.UTF_8).lines().toList();
    assertEquals(
        "sweep: nothing could be measured; give --backend to try other choices: no ranks today",
        lines.getLast());
  }

  @Test
  @Timeout(value = 3, unit = TimeUnit.MINUTES)
  void terminatedSweepLeavesNothingBehind() throws IOException, InterruptedException {
    List<String> command = PerfProgram.command();
    command.set(command.size() - 1, Sweep.class.getName());
    command.add(1, "-Djava.io.tmpdir=" + folder);
    command.addAll(List.of("--backend", "reference", "--ranks", "2", "-n", "1000000"));
    Process process =
        new ProcessBuilder(command)
            .redirectErrorStream(true)
            .redirectOutput(ProcessBuilder.Redirect.DISCARD)
            .start();
    try {
      while (files("auto.err").isEmpty()) {
        assertFalse(process.waitFor(50, TimeUnit.MILLISECONDS), "it exited by itself");
      }
      process.destroy();
      assertTrue(process.waitFor(60, TimeUnit.SECONDS), "it is still running");
    } finally {
      process.destroyForcibly();
    }
    assertEquals(List.of(), files("nccl4j-sweep-"));
    // Its child processes have the same options.
    assertEquals(
        List.of(),
        ProcessHandle.allProcesses()
            .map(left -> left.info().commandLine().orElse(""))
            .filter(line -> line.contains(folder.toString()))
            .toList());
  }

  private List<Path> files(String name) throws IOException {
    try (Stream<Path> files = Files.find(folder, 2, (file, of) -> true)) {
      return files.filter(file -> file.getFileName().toString().startsWith(name)).toList();
    }
  }

  private static boolean measures(ProcessHandle process) {
    return process.info().commandLine().orElse("").contains("-n 1000000");
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      textBlock =
          """
          nothing                               | (COLLECTIVE): 'nothing' is not one of all_reduce,
          --algo star                           | expected one of [AUTO, RING, TREE, DIRECT, NVLS,
          --proto fast                          | expected one of [LL, LL128, SIMPLE]
          --limit 0                             | --limit is 0; it must be from 1 to 86400
          --rounds none                         | 'none' is not a whole number
          --html none/a.html                    | 'none/a.html' cannot be written: there is no folder
          --html a.gif                          | 'a.gif' does not end in .html or .htm
          --backend reference --proto ll        | the reference backend has no protocols to choose
          --backend reference --algo nvls       | --algo has nvls, which the reference backend does not have
          --backend nccl --algo direct          | --algo has direct, which the nccl backend does not have
          --backend nccl --algo auto            | --algo has auto, which is always measured
          alltoall                              | alltoall consists of sends and receives, for which there is no choice
          --show-algorithm                      | --show-algorithm is not for a sweep
          all_gather --backend reference        | a choice of algorithms for all_reduce only, not for all_gather
          -J a.json                             | -J is not for a sweep
          -Ja.json                              | -J is not for a sweep
          --output_f=a.json                     | -J is not for a sweep
          --comp a.json                         | --compare is not for a sweep
          --alg ring                            | --algo is not for a sweep
          --percentiles                         | --percentiles is not for a sweep
          -d all                                | use one type, one operator, one root and one cycle
          -N 2                                  | use one type, one operator, one root and one cycle
          -b 8 -e 4                             | -b must not be above -e
          --colour                              | '--colour'
          """)
  void invalidArgumentsAreRefusedBeforeAnyRun(String arguments, String rule) {
    assertEquals(Commands.BAD_ARGUMENTS, run(Map.of(), arguments));
    assertTrue(err.toString(StandardCharsets.UTF_8).contains(rule), err::toString);
    assertEquals(1, err.toString(StandardCharsets.UTF_8).lines().count(), err::toString);
    assertEquals("", out.toString(StandardCharsets.UTF_8));
  }

  @Test
  void helpNamesEveryFlag() {
    assertEquals(Commands.OK, run(Map.of(), "--help"));
    for (String flag : List.of("--algo", "--proto", "--rounds", "--limit", "--csv", "--html")) {
      assertTrue(out.toString(StandardCharsets.UTF_8).contains(flag), flag);
    }
  }
}
