package io.nccl4j.tools.trace;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
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
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import jdk.jfr.Recording;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * Records two processes, merges the recordings, and opens the page in a browser if one is
 * installed.
 */
class TraceTest {
  @TempDir static Path recorded;
  @TempDir Path folder;

  private final ByteArrayOutputStream out = new ByteArrayOutputStream();
  private final ByteArrayOutputStream err = new ByteArrayOutputStream();

  @BeforeAll
  static void record() throws Exception {
    List<Process> ranks = new ArrayList<>();
    for (int rank = 0; rank < 2; rank++) {
      ranks.add(
          new ProcessBuilder(
                  Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                  "-Xlog:disable",
                  "-XX:StartFlightRecording:filename=" + recording(rank),
                  "-cp",
                  System.getProperty("java.class.path"),
                  CrossingRank.class.getName(),
                  String.valueOf(rank),
                  recorded.resolve("rendezvous").toString())
              .redirectErrorStream(true)
              .redirectOutput(recorded.resolve("output-" + rank).toFile())
              .start());
    }
    for (int rank = 0; rank < 2; rank++) {
      try {
        assertTrue(
            ranks.get(rank).waitFor(90, TimeUnit.SECONDS), "rank " + rank + " did not finish");
      } finally {
        ranks.get(rank).destroyForcibly();
      }
      assertEquals(
          0, ranks.get(rank).exitValue(), Files.readString(recorded.resolve("output-" + rank)));
    }
  }

  private static String recording(int rank) {
    return recorded.resolve("rank" + rank + ".jfr").toString();
  }

  private int run(String... args) {
    return Trace.run(
        new PrintStream(out, true, StandardCharsets.UTF_8),
        new PrintStream(err, true, StandardCharsets.UTF_8),
        args);
  }

  private String output() {
    return out.toString(StandardCharsets.UTF_8);
  }

  private String complaint() {
    return err.toString(StandardCharsets.UTF_8);
  }

  @Test
  void summaryCountsBothRanks() {
    assertEquals(Commands.OK, run(recording(0), recording(1)), this::complaint);
    List<String> lines = output().lines().toList();
    assertTrue(lines.getFirst().startsWith("2 recordings, 2 ranks, "), lines::toString);
    // Two ranks, three times 1000 floats.
    assertTrue(
        lines.stream().anyMatch(line -> line.matches("allReduce +6 +24000 .* 0")), lines::toString);
    assertTrue(lines.stream().anyMatch(line -> line.matches("send +4 +16000 .* 0")), output());
    assertFalse(output().contains("clock of"), "processes of one host share its clock");
  }

  @Test
  void traceHasTrackPerRankAndStream() throws IOException {
    Path trace = folder.resolve("trace.json");
    assertEquals(
        Commands.OK, run(recording(0), recording(1), "-o", trace.toString()), this::complaint);
    List<String> names = new ArrayList<>();
    int depth = 0;
    try (JsonParser json = new JsonFactory().createParser(trace.toFile())) {
      for (JsonToken token = json.nextToken(); token != null; token = json.nextToken()) {
        depth += token.isStructStart() ? 1 : token.isStructEnd() ? -1 : 0;
        if (token == JsonToken.VALUE_STRING && "name".equals(json.currentName())) {
          names.add(json.getText());
        }
      }
    }
    assertEquals(0, depth);
    for (int rank = 0; rank < 2; rank++) {
      String of = "rank " + rank + " on ";
      assertEquals(1, names.stream().filter(name -> name.startsWith(of)).count(), of);
    }
    assertEquals(4, names.stream().filter(name -> name.startsWith("stream ")).count());
    // For each rank: on its track, and in its row of calls.
    assertEquals(4, names.stream().filter("allReduce #3"::equals).count());
    assertTrue(names.containsAll(List.of("init", "split", "close")), names::toString);
  }

  @Test
  @Tag("slow")
  void exchangesOverlapInBrowser() throws IOException, InterruptedException {
    Path page = folder.resolve("page.html");
    assertEquals(
        Commands.OK, run(recording(0), recording(1), "--html", page.toString()), this::complaint);
    Visit visit =
        HeadlessBrowser.in(folder)
            .open(
                page,
                "",
                HeadlessBrowser.DESK,
                """
                const own = spans.filter(span => span.row.pid === 0 && span.operation === "recv");
                const [one, another] = own;
                return [
                  trace.traceEvents.filter(event => event.ph === "X" && event.cat === "collective").length,
                  order.map(rank => rank.rows.length + " rows").join(", "),
                  own.length + " exchanges",
                  one.row !== another.row && one.args.communicator !== another.args.communicator ? "apart" : "together",
                  Math.min(one.ended, another.ended) > Math.max(one.begun, another.begun) ? "overlap" : "in turn",
                  spans.filter(span => span.operation === "allReduce").every(span => span.partners.length === 2) ? "paired" : "alone",
                  $("picture").width > 0 && $("picture").height > 100 ? "drawn" : "empty"
                ].join("; ");
                """);
    assertEquals(List.of(), visit.errors());
    assertEquals(List.of(), visit.requests());
    assertEquals("14; 2 rows, 2 rows; 2 exchanges; apart; overlap; paired; drawn", visit.answer());
  }

  @Test
  @Tag("slow")
  void pageFitsAPhoneAndZooms() throws IOException, InterruptedException {
    Path page = folder.resolve("page.html");
    assertEquals(
        Commands.OK, run(recording(0), recording(1), "--html", page.toString()), this::complaint);
    Visit visit =
        HeadlessBrowser.in(folder)
            .open(
                page,
                "",
                HeadlessBrowser.PHONE,
                """
                const before = to - from;
                $("in").click();
                const closer = (to - from) / before;
                $("all").click();
                return [closer.toFixed(6), ((to - from) / before).toFixed(6), document.documentElement.scrollWidth <= innerWidth].join(" ");
                """);
    assertEquals(List.of(), visit.errors());
    assertEquals("0.500000 1.000000 true", visit.answer());
  }

  @Test
  @Tag("slow")
  void pageHasThePrintedSummary() throws IOException, InterruptedException {
    Path page = folder.resolve("page.html");
    assertEquals(
        Commands.OK, run(recording(0), recording(1), "--html", page.toString()), this::complaint);
    Visit visit =
        HeadlessBrowser.in(folder)
            .open(
                page,
                "",
                HeadlessBrowser.PHONE,
                """
                return [...document.querySelectorAll("section tr")].map(row => [...row.cells].map(cell => cell.textContent).join(" ")).join("\\n");
                """);
    // All but the line with the extent and the blank lines.
    assertEquals(
        output().lines().skip(1).filter(line -> !line.isEmpty()).map(TraceTest::words).toList(),
        visit.answer().lines().toList());
  }

  private static String words(String line) {
    return line.strip().replaceAll(" {2,}", " ");
  }

  @Test
  void programEventsAreShownByThread() throws IOException {
    Path trace = folder.resolve("trace.json");
    assertEquals(
        Commands.OK,
        run(recording(0), recording(1), "--with", "test.Backward", "-o", trace.toString()),
        this::complaint);
    String json = Files.readString(trace);
    assertEquals(7, json.split("\"backward\"", -1).length, "three on each rank");
    assertTrue(json.contains("\"thread main\""));
  }

  @Test
  void missingEventIsNamed() {
    assertEquals(
        Commands.BAD_ARGUMENTS,
        run(recording(0), "--with", "test.Backward", "--with", "no.such.Event"));
    assertEquals(
        "trace: --with: no recording has an event no.such.Event; see --help", complaint().strip());
  }

  @Test
  void firstStringOfAnEventIsInItsName() throws IOException {
    Path trace = folder.resolve("trace.json");
    String event = "jdk.InitialEnvironmentVariable";
    assertEquals(
        Commands.OK, run(recording(0), "--with", event, "-o", trace.toString()), this::complaint);
    assertTrue(Files.readString(trace).contains("Initial Environment Variable: PATH\""));
  }

  @Test
  void missingDirectoryIsNamedFirst() {
    Path trace = folder.resolve("none").resolve("t.json");
    assertEquals(Commands.BAD_ARGUMENTS, run("none.jfr", "-o", trace.toString()));
    assertTrue(complaint().contains("there is no folder '" + trace.getParent()), this::complaint);
    assertEquals(1, complaint().lines().count(), this::complaint);
  }

  @Test
  void missingFileIsNamed() {
    assertEquals(Commands.FAILED, run(folder.resolve("none.jfr").toString()));
    assertEquals("trace: " + folder.resolve("none.jfr") + " does not exist", complaint().strip());
  }

  @Test
  void fileThatIsNotARecordingIsNamed() throws IOException {
    Path text = Files.writeString(folder.resolve("text.jfr"), "no recording\n".repeat(100));
    assertEquals(Commands.FAILED, run(recording(0), text.toString()));
    assertTrue(
        complaint().startsWith("trace: " + text + " is not a complete flight recording: "),
        this::complaint);
  }

  @Test
  void truncatedRecordingIsNamed() throws IOException {
    byte[] whole = Files.readAllBytes(Path.of(recording(0)));
    Path half = folder.resolve("half.jfr");
    Files.write(half, Arrays.copyOf(whole, whole.length / 2));
    assertEquals(Commands.FAILED, run(half.toString()));
    assertTrue(complaint().startsWith("trace: " + half + " is not a complete"), this::complaint);
  }

  @Test
  void recordingWithoutOurEventsIsNamed() throws IOException {
    Path other = folder.resolve("other.jfr");
    try (Recording recording = new Recording()) {
      recording.start();
      recording.disable("io.nccl4j.Process");
      recording.dump(other);
    }
    assertEquals(Commands.FAILED, run(other.toString()));
    assertTrue(
        complaint().startsWith("trace: " + other + " has no nccl4j events"), this::complaint);
    err.reset();
    assertEquals(Commands.OK, run(recording(0), other.toString()));
    assertEquals("trace: " + other + " has no nccl4j events and is ignored", complaint().strip());
    assertTrue(output().startsWith("1 recording, 1 rank, "), this::output);
  }

  @Test
  void recordingIsRequired() {
    assertEquals(Commands.BAD_ARGUMENTS, run("-o", "trace.json"));
    assertTrue(complaint().contains("RECORDING"), this::complaint);
  }
}
