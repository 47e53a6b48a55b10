package io.nccl4j.tools;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.fixtures.Checkout;
import io.nccl4j.fixtures.programs.FinishedProgram;
import io.nccl4j.fixtures.programs.StandIn;
import io.nccl4j.tools.cli.JsonTree;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.jar.JarFile;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The tools as one file: {@code java -jar nccl4j-tools-VERSION-all.jar}. */
@Tag("bundle")
class ExecutableJarTest {
  private static final String PREFIX = "nccl4j-tools-";
  private static final String SUFFIX = "-all.jar";

  @TempDir static Path folder;
  private static Path jar;

  @BeforeAll
  static void find() throws IOException {
    try (Stream<Path> built = Files.list(Checkout.ROOT.resolve("tools/target"))) {
      jar = built.filter(file -> file.toString().endsWith(SUFFIX)).findFirst().orElse(null);
    }
    assumeTrue(jar != null, "the executable jar is only built with -Prelease");
  }

  private static FinishedProgram run(Map<String, String> environment, String... args)
      throws IOException, InterruptedException {
    String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
    List<String> command = new ArrayList<>(List.of(java, "-jar", jar.toString()));
    command.addAll(List.of(args));
    return FinishedProgram.run(environment, command);
  }

  private static String output(String... args) throws IOException, InterruptedException {
    FinishedProgram ended = run(Map.of(), args);
    assertEquals(0, ended.status(), ended.output());
    assertEquals("", ended.err());
    return ended.out();
  }

  @Test
  void versionIsThatOfTheFile() throws Exception {
    assertEquals("nccl4j " + version() + "\n", output("--version"));
  }

  private static String version() {
    String name = jar.getFileName().toString();
    return name.substring(PREFIX.length(), name.length() - SUFFIX.length());
  }

  @Test
  void processesOfPerfStart() throws Exception {
    FinishedProgram ended =
        run(
            Map.of(),
            ("perf allreduce --backend reference --procs 2 -b 8 -e 8 -J " + file("run.json"))
                .split(" "));
    assertEquals(0, ended.status(), ended.output());
    assertTrue(ended.out().contains("# Out of bounds values : 0 OK"), ended.output());
    assertTrue(ended.out().contains("nccl4j " + version() + ", backend reference"), ended.out());
    output("report", file("run.json"), "--html", file("report.html"));
    assertTrue(Files.readString(Path.of(file("report.html"))).contains("all_reduce"));
  }

  private static String file(String name) {
    return folder.resolve(name).toString();
  }

  @Test
  void sweepStartsPerf() throws Exception {
    FinishedProgram ended =
        run(
            Map.of(),
            "sweep --backend reference --ranks 2 -b 8 -e 8 -n 1 --rounds 1 --algo ring".split(" "));
    assertEquals(0, ended.status(), ended.output());
    assertTrue(ended.out().contains("ring"), ended.output());
  }

  @Test
  void doctorFindsStandIn() throws Exception {
    FinishedProgram ended = run(StandIn.build(), "doctor", "--json");
    assertEquals(0, ended.status(), ended.output());
    Map<?, ?> json = (Map<?, ?>) JsonTree.parse(ended.out());
    assertEquals(true, json.get("usable"));
    assertTrue(ended.out().contains(StandIn.NCCL.toString()), ended.out());
  }

  @Test
  void recordedRunIsTraced() throws Exception {
    FinishedProgram recorded =
        run(
            Map.of("JAVA_TOOL_OPTIONS", "-XX:StartFlightRecording:filename=" + file("run.jfr")),
            "perf all_reduce --backend reference --ranks 2 -b 8 -e 8 -n 1 -w 0".split(" "));
    assertEquals(0, recorded.status(), recorded.output());
    String summary = output("trace", file("run.jfr"), "--html", file("trace.html"));
    assertTrue(summary.startsWith("1 recording, 2 ranks,"), summary);
  }

  @Test
  void allReduceIsExplainedAndSimulated() throws Exception {
    assertTrue(output("explain", "allreduce", "--ranks", "2").startsWith("all_reduce, "));
    assertTrue(output("simulate", "--ranks", "16", "--nodes", "2").contains("crossovers"));
  }

  @Test
  void evidenceRunsContractOnStandIn() throws Exception {
    String out = file("evidence");
    FinishedProgram ended =
        run(StandIn.build(), "evidence", "--quick", "--steps", "contract-nccl-features", out);
    assertEquals(0, ended.status(), ended.output());
    String page = Files.readString(Path.of(out, "evidence.md"));
    assertTrue(page.contains("from nccl4j " + version() + ", commit unknown. Not edited."), page);
    assertTrue(page.contains("2 steps: 2 passed"), page);
  }

  @Test
  void licencesOfEverythingInsideAreKept() throws IOException {
    try (JarFile file = new JarFile(jar.toFile())) {
      String notice = text(file, "META-INF/NOTICE");
      for (String owner : List.of("the nccl4j authors", "Apache Log4j", "Jackson")) {
        assertTrue(notice.contains(owner), notice);
      }
      assertTrue(text(file, "META-INF/LICENSE").contains("Apache License"));
      assertTrue(text(file, "META-INF/LICENSE.md").contains("Eclipse Public License"));
    }
  }

  private static String text(JarFile file, String entry) throws IOException {
    return new String(
        file.getInputStream(file.getEntry(entry)).readAllBytes(), StandardCharsets.UTF_8);
  }
}
