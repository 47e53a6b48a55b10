package io.nccl4j.tools.evidence;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.programs.FinishedProgram;
import io.nccl4j.fixtures.programs.StandIn;
import io.nccl4j.tools.cli.JsonTree;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Tests of the command on the stand-in. */
class EvidenceTest {
  @TempDir Path folder;

  /** Makes every operation on the stand-in take ten minutes. */
  private static final Map<String, String> HANGING =
      Map.of("NCCL4J_STANDIN_KERNEL_NS", "600000000000");

  private FinishedProgram run(Map<String, String> variables, String... arguments)
      throws IOException, InterruptedException {
    return FinishedProgram.run(environment(variables), words(arguments));
  }

  private static Map<String, String> environment(Map<String, String> variables)
      throws IOException, InterruptedException {
    Map<String, String> environment = StandIn.build();
    environment.put("CLASSPATH", Java.classPath());
    environment.putAll(variables);
    return environment;
  }

  private List<String> words(String... arguments) throws IOException {
    List<String> words = new ArrayList<>(Java.command(EvidenceCommand.class.getName()));
    words.add(1, "-Djava.io.tmpdir=" + Files.createDirectories(folder.resolve("tmp")));
    words.addAll(List.of(arguments));
    words.add(folder.resolve("out").toString());
    return words;
  }

  private Map<?, ?> json() throws IOException {
    return (Map<?, ?>) JsonTree.parse(Files.readString(folder.resolve("out/evidence.json")));
  }

  /** Returns one field of each step, by the name of the step. */
  private Map<String, Object> steps(String name) throws IOException {
    Map<String, Object> found = new LinkedHashMap<>();
    for (Object step : (List<?>) json().get("steps")) {
      Map<?, ?> one = (Map<?, ?>) step;
      found.put((String) one.get("name"), one.get(name));
    }
    return found;
  }

  @Test
  void earlierEvidenceIsKept() throws IOException, InterruptedException {
    Map<String, String> build = Map.of("NCCL4J_BUILD", "1.0, commit aaa");
    FinishedProgram first = run(build, "--quick", "--steps", "cross-check");
    assertEquals(0, first.status(), first.output());
    assertEquals("1.0, commit aaa", json().get("build"));
    assertEquals("passed", steps("status").get("cross-check-one-process"));
    Path out = folder.resolve("out");
    String page = Files.readString(out.resolve("evidence.md"));
    FinishedProgram second = run(Map.of(), "--quick", "--steps", "bandwidth-all-reduce");
    assertEquals(2, second.status(), second.output());
    assertEquals(
        "evidence: OUT is %s, which has the evidence of an earlier run; name another folder; see --help"
            .formatted(out),
        second.lastLine());
    assertEquals("1.0, commit aaa", json().get("build"));
    assertEquals(page, Files.readString(out.resolve("evidence.md")));
  }

  @Test
  void bandwidthTableIsOnThePage() throws IOException, InterruptedException {
    FinishedProgram ended = run(Map.of(), "--quick", "--steps", "bandwidth-all-reduce");
    assertEquals(0, ended.status(), ended.output());
    assertEquals(Map.of("device", "passed", "bandwidth-all-reduce", "passed"), steps("status"));
    String page = Files.readString(folder.resolve("out/evidence.md"));
    assertTrue(page.contains("    4096          1024     float     sum"), page);
  }

  @Test
  @Tag("slow")
  void limitIsSharedAmongTheSteps() throws IOException, InterruptedException {
    String names = "bandwidth-all-reduce,cross-check-one-process,contract-one-process";
    FinishedProgram ended = run(HANGING, "--quick", "--limit", "30", "--steps", names);
    assertEquals(1, ended.status(), ended.output());
    Map<String, Object> status = steps("status");
    assertEquals(4, status.size(), status.toString());
    assertTrue(status.containsValue("TIMED OUT"), status.toString());
    assertEquals("NOT RUN", status.get("contract-one-process"), status.toString());
    double seconds =
        steps("seconds").values().stream().mapToDouble(each -> ((Number) each).doubleValue()).sum();
    assertTrue(seconds < 45, "the steps took " + seconds + " s");
    assertTrue(ended.output().contains(" not run to the end\n"), ended.output());
  }

  @ParameterizedTest
  @ValueSource(booleans = {true, false})
  void stepThatIsEndedFromOutsideStaysOnThePage(boolean kill)
      throws IOException, InterruptedException {
    ProcessBuilder builder =
        new ProcessBuilder(words("--quick", "--steps", "bandwidth-all-reduce"));
    builder.environment().putAll(environment(HANGING));
    builder.redirectErrorStream(true).redirectOutput(folder.resolve("output").toFile());
    Process process = builder.start();
    List<ProcessHandle> children = List.of();
    try {
      long limit = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
      while (!Files.exists(folder.resolve("out/evidence.json"))
          || !"RUNNING".equals(steps("status").get("bandwidth-all-reduce"))) {
        assertTrue(System.nanoTime() < limit, Files.readString(folder.resolve("output")));
        Thread.sleep(20);
      }
      children = process.descendants().toList();
      boolean sent = kill ? process.toHandle().destroyForcibly() : process.toHandle().destroy();
      assertTrue(sent && process.waitFor(60, TimeUnit.SECONDS), "it ends");
    } finally {
      process.destroyForcibly();
      children.forEach(ProcessHandle::destroyForcibly);
    }
    assertEquals(Map.of("device", "passed", "bandwidth-all-reduce", "RUNNING"), steps("status"));
    if (!kill) {
      try (Stream<Path> left = Files.list(folder.resolve("tmp"))) {
        assertEquals(List.of(), left.toList());
      }
    }
    assertEquals(false, json().get("passed"));
    String page = Files.readString(folder.resolve("out/evidence.md"));
    assertTrue(page.contains(" in one process | **RUNNING** |"), page);
  }

  @Test
  void missingGpuSkipsOtherSteps() throws IOException, InterruptedException {
    FinishedProgram ended =
        run(Map.of("NCCL4J_STANDIN_DEVICES", "0"), "--quick", "--steps", "bandwidth");
    assertEquals(1, ended.status(), ended.output());
    assertTrue(
        ended
            .output()
            .contains(
                "\nno usable GPU found; the other steps are skipped; nccl4j doctor reports why\n"),
        ended.output());
    assertFalse(ended.output().contains("remaining steps"), ended.output());
    String page = Files.readString(folder.resolve("out/evidence.md"));
    assertTrue(page.contains("Bandwidth, all_reduce, all ranks in one process"), page);
  }

  @Test
  void launcherIsRefused() throws IOException, InterruptedException {
    FinishedProgram ended = run(Map.of("NCCL4J_RANK", "1", "NCCL4J_WORLD_SIZE", "2"));
    assertEquals(2, ended.status(), ended.output());
    assertTrue(
        ended.output().startsWith("evidence: this process is one of 2, started by "),
        ended.output());
    assertFalse(Files.exists(folder.resolve("out")));
  }

  @Test
  void fileIsRefusedAsDirectory() throws IOException, InterruptedException {
    Files.writeString(folder.resolve("out"), "a file");
    FinishedProgram ended = run(Map.of());
    assertEquals(2, ended.status(), ended.output());
    assertTrue(ended.output().contains("which is not a directory"), ended.output());
  }

  @Test
  void stepNamesAreListedAndChecked() throws IOException, InterruptedException {
    FinishedProgram help = run(Map.of(), "--help");
    assertEquals(0, help.status(), help.output());
    for (String name : EvidencePlan.names()) {
      assertTrue(help.output().contains(name), name);
    }
    FinishedProgram unknown = run(Map.of(), "--steps", "bandwidth,nothing");
    assertEquals(2, unknown.status(), unknown.output());
    assertTrue(
        unknown.output().startsWith("evidence: --steps: unknown step nothing; known: device, pred"),
        unknown.output());
    assertFalse(Files.exists(folder.resolve("out")));
  }
}
