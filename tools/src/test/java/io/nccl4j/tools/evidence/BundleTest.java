package io.nccl4j.tools.evidence;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.fixtures.Checkout;
import io.nccl4j.fixtures.programs.FinishedProgram;
import io.nccl4j.fixtures.programs.StandIn;
import io.nccl4j.tools.cli.JsonTree;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * Tests the unpacked archive in an environment without this machine's Java. Runs all evidence steps
 * on the stand-in with {@code --quick}.
 */
@Tag("bundle")
class BundleTest {
  private static final long MAX_BYTES = 45L << 20;
  private static final String PATH = "/usr/bin:/bin";

  @TempDir static Path folder;
  private static Path bundle;

  private static FinishedProgram run(Map<String, String> environment, String... command)
      throws IOException, InterruptedException {
    ProcessBuilder builder = new ProcessBuilder(command);
    builder.environment().clear();
    builder.environment().put("PATH", PATH);
    builder.environment().putAll(environment);
    return FinishedProgram.run(builder);
  }

  @BeforeAll
  static void unpack() throws IOException, InterruptedException {
    Path jlink = Path.of(System.getProperty("java.home"), "bin", "jlink");
    assumeTrue(Files.isExecutable(jlink), "this JDK has no jlink");
    FinishedProgram built =
        run(Map.of(), Checkout.ROOT.resolve("scripts/bundle").toString(), "--built");
    assertEquals(0, built.status(), built.output());
    Path archive = Path.of(built.lastLine());
    long bytes = Files.size(archive);
    assertTrue(bytes <= MAX_BYTES, archive + " has " + bytes + " bytes");
    // A directory name with a space, to test the quoting in scripts.
    Path place = Files.createDirectory(folder.resolve("some where"));
    FinishedProgram unpacked =
        run(Map.of(), "tar", "-xzf", archive.toString(), "-C", place.toString());
    assertEquals(0, unpacked.status(), unpacked.output());
    bundle = place.resolve("nccl4j");
  }

  private static String script(String name) {
    return bundle.resolve("scripts").resolve(name).toString();
  }

  @Test
  void helloRuns() throws IOException, InterruptedException {
    FinishedProgram ended = run(Map.of(), bundle.resolve("examples/hello/run").toString());
    assertEquals(0, ended.status(), ended.output());
    assertTrue(ended.lastLine().contains("has the sum of 1000 elements, OK"), ended.output());
  }

  @Test
  void doctorFindsStandIn() throws IOException, InterruptedException {
    FinishedProgram ended = run(StandIn.build(), script("nccl4j"), "doctor", "--json");
    assertEquals(0, ended.status(), ended.output());
    Map<?, ?> json = (Map<?, ?>) JsonTree.parse(ended.output());
    assertEquals(true, json.get("usable"));
    assertTrue(json.toString().contains(StandIn.NCCL.toString()), ended.output());
  }

  @Test
  void bandwidthCommandRuns() throws IOException, InterruptedException {
    FinishedProgram ended =
        run(
            Map.of(),
            script("all-reduce-perf"),
            "--backend",
            "reference",
            "-b",
            "8",
            "-e",
            "64",
            "-f",
            "8");
    assertEquals(0, ended.status(), ended.output());
    assertEquals(2, NcclTests.parse(ended.output()).size(), ended.output());
  }

  @Test
  void recordedRunIsTraced() throws IOException, InterruptedException {
    Path recording = folder.resolve("hello.jfr");
    FinishedProgram recorded =
        run(
            Map.of("JAVA_TOOL_OPTIONS", "-XX:StartFlightRecording:filename=" + recording),
            bundle.resolve("examples/hello/run").toString());
    assertEquals(0, recorded.status(), recorded.output());
    Path page = folder.resolve("trace.html");
    FinishedProgram traced =
        run(Map.of(), script("nccl4j"), "trace", recording.toString(), "--html", page.toString());
    assertEquals(0, traced.status(), traced.output());
    assertTrue(traced.output().startsWith("1 recording, 2 ranks,"), traced.output());
    assertTrue(Files.readString(page).contains("allReduce"), "the page contains the all-reduce");
  }

  @Test
  void ringIsExplained() throws IOException, InterruptedException {
    Path page = folder.resolve("ring.html");
    FinishedProgram ended =
        run(Map.of(), script("nccl4j"), "explain", "all_reduce", "--html", page.toString());
    assertEquals(0, ended.status(), ended.output());
    assertTrue(Files.readString(page).contains("</html>"), ended.output());
  }

  @Test
  void clusterIsSimulated() throws IOException, InterruptedException {
    FinishedProgram ended =
        run(Map.of(), script("nccl4j"), "simulate", "--ranks", "16", "--nodes", "2", "--json");
    assertEquals(0, ended.status(), ended.output());
    Map<?, ?> json = (Map<?, ?>) JsonTree.parse(ended.output());
    assertTrue(json.containsKey("ranks_per_node"), ended.output());
  }

  @Test
  void pagesAreWritten() throws IOException, InterruptedException {
    Path page = folder.resolve("sweep.html");
    FinishedProgram ended =
        run(
            Map.of(),
            script("nccl4j"),
            "sweep",
            "--backend",
            "reference",
            "--algo",
            "ring",
            "--rounds",
            "1",
            "-b",
            "8",
            "-e",
            "8",
            "--html",
            page.toString());
    assertEquals(0, ended.status(), ended.output());
    assertTrue(Files.readString(page).contains("what auto costs"));
    Path json = folder.resolve("run.json");
    FinishedProgram perf =
        run(
            Map.of(),
            script("all-reduce-perf"),
            "--backend",
            "reference",
            "-b",
            "8",
            "-e",
            "8",
            "-J",
            json.toString());
    assertEquals(0, perf.status(), perf.output());
    Path report = folder.resolve("report.html");
    FinishedProgram shown =
        run(Map.of(), script("nccl4j"), "report", json.toString(), "--html", report.toString());
    assertEquals(0, shown.status(), shown.output());
    assertTrue(Files.readString(report).contains("all_reduce"));
  }

  @Test
  void allStepsRunOnStandIn() throws IOException, InterruptedException {
    Map<String, String> environment = StandIn.build();
    environment.put("NCCL_TESTS_DIR", fakeNcclTests().toString());
    environment.put("NCCL4J_STANDIN_DEVICES", "2");
    Path out = folder.resolve("out");
    FinishedProgram ended =
        run(environment, script("nccl4j"), "evidence", "--quick", out.toString());
    assertEquals(0, ended.status(), ended.output());
    assertEquals(out.resolve("evidence.md").toString(), ended.lastLine());

    Map<?, ?> json = (Map<?, ?>) JsonTree.parse(Files.readString(out.resolve("evidence.json")));
    assertEquals("a test fixture, not NCCL, no GPU", json.get("libraries"));
    Map<String, String> status = new LinkedHashMap<>();
    for (Object step : (List<?>) json.get("steps")) {
      Map<?, ?> one = (Map<?, ?>) step;
      status.put((String) one.get("name"), (String) one.get("status"));
    }
    Map<String, String> expected = new LinkedHashMap<>();
    for (String name : EvidencePlan.names()) {
      boolean severalProcesses =
          name.endsWith("processes")
              || List.of("bandwidth-shared", "cross-check-python").contains(name);
      // The stand-in reduces in rank order, which no ring or tree does.
      boolean otherOrder = name.startsWith("prediction-");
      expected.put(name, severalProcesses || otherOrder ? "not possible here" : "passed");
    }
    if (EvidencePlan.onPath("nvidia-smi", Map.of("PATH", PATH)).isEmpty()) {
      expected.put("device-nvidia-smi", "not possible here");
    }
    assertEquals(expected, status);

    String page = Files.readString(out.resolve("evidence.md"));
    assertTrue(page.contains("> **This is not a GPU result.**"), page);
    assertTrue(Files.size(out.resolve("evidence.log")) > 0);
  }

  /** Creates a build directory of nccl-tests whose program is our own command. */
  private static Path fakeNcclTests() throws IOException {
    Path build = Files.createDirectories(folder.resolve("tests").resolve("build"));
    Files.createFile(
        build.resolve("all_reduce_perf"),
        PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
    Files.writeString(
        build.resolve("all_reduce_perf"),
        "#!/bin/sh\nexec '" + script("all-reduce-perf") + "' \"$@\"\n");
    return build.getParent();
  }

  @Test
  void missingLibraryFailsFirstStep() throws IOException, InterruptedException {
    Path out = folder.resolve("nothing");
    FinishedProgram ended =
        run(
            Map.of("NCCL4J_CUDART_LIBRARY", "/no/such/libcudart.so"),
            script("nccl4j"),
            "evidence",
            out.toString());
    assertEquals(1, ended.status(), ended.output());
    String page = Files.readString(out.resolve("evidence.md"));
    List<String> lines = new ArrayList<>(page.lines().toList());
    assertEquals("# nccl4j evidence: no usable GPU, NCCL not loaded", lines.getFirst());
    int steps = EvidencePlan.names().size();
    String counts =
        "**%d steps: 0 passed, %d not possible here, 1 failed**".formatted(steps, steps - 1);
    assertTrue(lines.stream().anyMatch(line -> line.startsWith(counts)), ended.output());
    assertTrue(page.contains("/no/such/libcudart.so"), page);
  }

  @Test
  void badArgumentsAreNamed() throws IOException, InterruptedException {
    FinishedProgram none = run(Map.of(), script("nccl4j"), "evidence");
    assertEquals(2, none.status(), none.output());
    FinishedProgram step =
        run(Map.of(), script("nccl4j"), "evidence", "--steps", "device,nothing", "out");
    assertEquals(2, step.status(), step.output());
    assertTrue(
        step.lastLine().startsWith("evidence: --steps: unknown step nothing; known: device,"));
    FinishedProgram out = run(Map.of(), script("nccl4j"), "evidence", "/proc/nothing");
    assertEquals(2, out.status(), out.output());
    assertTrue(
        out.lastLine().startsWith("evidence: OUT is /proc/nothing, which cannot be created: "),
        out.output());
  }
}
