package io.nccl4j.tools.evidence;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.tools.cli.JsonTree;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Tests of the page and the JSON of a run. */
class PageTest {
  private static final Machine GPU = machine(Libraries.NVIDIA, "2.28.9");
  private static final Machine STAND_IN = machine(Libraries.STAND_IN, "2.30.7");

  private static final Run.RunSource LATEST =
      new Run.RunSource("2026-11-20 12:00:00 UTC", "1.0, commit abc", "Java 25");

  private static Machine machine(Libraries libraries, String nccl) {
    String device = libraries == Libraries.NVIDIA ? "Some GPU" : "nccl4j stand-in (no GPU)";
    return new Machine(true, libraries, device, 1, nccl, "/lib/libnccl.so.2", "/lib/libcudart.so");
  }

  private static Outcome outcome(Outcome.Status status, String summary) {
    Step.Command command =
        new Step.Command(
            "rank 0",
            List.of("/opt/java", "-flag", Child.class.getName(), "device"),
            Map.of("NCCL_NET", "Socket", "CLASSPATH", "/a:/b"),
            Path.of("report"));
    Report report =
        new Report(
            Report.Verdict.PASSED,
            summary,
            Map.of("a fact", "its value"),
            List.of(
                new Table(
                    "all_reduce, GB/s",
                    List.of("size", "busbw"),
                    List.of(List.of(8L, 0.25), List.of(64L, "a | b")))),
            List.of("a note"));
    Step step = Step.of("latency", "The title", Duration.ofSeconds(9), command);
    Map<String, String> tails = status.bad() ? Map.of("rank 0", "last words") : Map.of();
    return new Outcome(step, status, report, 1.26, tails);
  }

  private static Run run(Machine machine, Outcome... outcomes) {
    List<Run.Recorded> steps =
        Stream.of(outcomes).map(outcome -> new Run.Recorded(outcome, LATEST)).toList();
    return new Run(LATEST, false, machine, steps);
  }

  private static List<String> lines(Run run) {
    return Page.of(run).lines().toList();
  }

  @Test
  void pageNamesDeviceLibraryDateAndBuild() {
    List<String> lines = lines(run(GPU, outcome(Outcome.Status.PASSED, "fine")));
    assertEquals("# nccl4j evidence: Some GPU, NCCL 2.28.9", lines.getFirst());
    assertTrue(
        lines.contains(
            "Written by `scripts/nccl4j evidence` on 2026-11-20 12:00:00 UTC, from nccl4j 1.0, commit"
                + " abc. Not edited."));
    assertFalse(Page.of(run(GPU)).contains("stand-in"));
  }

  @Test
  void standInIsNamedFirst() {
    List<String> lines = lines(run(STAND_IN, outcome(Outcome.Status.PASSED, "fine")));
    assertEquals("# Not a GPU result: nccl4j stand-in (no GPU), NCCL 2.30.7", lines.getFirst());
    assertTrue(lines.get(2).startsWith("> **This is not a GPU result.**"), lines.get(2));
    assertTrue(lines.get(3).contains("a test fixture, not NCCL, no GPU"), lines.get(3));
  }

  @Test
  void emulatedCudaIsNamedFirst() {
    Machine machine = machine(Libraries.EMULATED_CUDA, "2.30.7");
    Run run = run(machine, outcome(Outcome.Status.PASSED, "fine"));
    List<String> lines = lines(run);
    assertEquals("# Not a GPU result: nccl4j stand-in (no GPU), NCCL 2.30.7", lines.getFirst());
    assertTrue(lines.get(3).contains("NVIDIA's NCCL on the emulated CUDA"), lines.get(3));
    assertEquals(false, run.tree().get("gpu"));
  }

  @Test
  void stepHasResultCommandAndTables() {
    List<String> lines = lines(run(GPU, outcome(Outcome.Status.PASSED, "fine")));
    assertTrue(lines.contains("| The title | passed | 1.3 | fine |"));
    assertTrue(lines.contains("/opt/java -flag io.nccl4j.tools.evidence.Child"));
    assertTrue(lines.contains("NCCL_NET=Socket $JAVA device"));
    assertTrue(lines.contains("| a fact | its value |"));
    assertTrue(lines.contains("- a note"));
    assertTrue(lines.contains("all_reduce, GB/s:"));
    assertTrue(lines.contains("| 8 | 0.25 |"));
    assertTrue(lines.contains("| 64 | a \\| b |"));
  }

  @Test
  void failedStepShowsEndOfOutput() {
    Run run =
        run(
            GPU,
            outcome(Outcome.Status.PASSED, "fine"),
            outcome(Outcome.Status.TIMED_OUT, "killed"),
            outcome(Outcome.Status.NOT_POSSIBLE, "no program"));
    List<String> lines = lines(run);
    assertTrue(lines.contains("**3 steps: 1 passed, 1 not possible here, 1 failed**, in 4 s"));
    assertTrue(lines.contains("Not possible here, 1.3 s: no program"));
    assertTrue(lines.contains("| The title | **TIMED OUT** | 1.3 | killed |"));
    assertTrue(lines.contains("last words"));
    assertFalse(run.passed());
  }

  @Test
  void impossibleStepIsNotAFailure() {
    assertTrue(
        run(GPU, outcome(Outcome.Status.PASSED, ""), outcome(Outcome.Status.NOT_POSSIBLE, ""))
            .passed());
  }

  @Test
  void jsonMatchesPage() throws IOException {
    Run run = run(STAND_IN, outcome(Outcome.Status.CRASHED, "killed by signal 11"));
    Map<?, ?> json = (Map<?, ?>) JsonTree.parse(JsonTree.text(run.tree()));
    assertEquals(false, json.get("gpu"));
    assertEquals("a test fixture, not NCCL, no GPU", json.get("libraries"));
    assertEquals(false, json.get("passed"));
    Map<?, ?> step = (Map<?, ?>) ((List<?>) json.get("steps")).getFirst();
    assertEquals("CRASHED", step.get("status"));
    assertEquals(1.3, step.get("seconds"));
    assertEquals(9L, step.get("deadline_seconds"));
    assertEquals(
        List.of(
            Map.of(
                "title",
                "all_reduce, GB/s",
                "columns",
                List.of("size", "busbw"),
                "rows",
                List.of(List.of(8L, 0.25), List.of(64L, "a | b")))),
        step.get("tables"));
    assertEquals(Map.of("rank 0", "last words"), step.get("output"));
    assertEquals("1.0, commit abc", step.get("build"));
    assertEquals("2026-11-20 12:00:00 UTC", step.get("date"));
    assertEquals("Java 25", step.get("versions"));
    assertEquals(1L, json.get("devices"));
  }

  @Test
  void stepOfEarlierRunIsMarked(@TempDir Path folder) throws IOException {
    Path json = folder.resolve("evidence.json");
    Run first = run(GPU, outcome(Outcome.Status.TIMED_OUT, "killed"));
    Files.writeString(json, JsonTree.text(first.tree()));
    Run.Earlier earlier = Run.Earlier.read(json);
    Run.RunSource today =
        new Run.RunSource("2026-11-21 09:00:00 UTC", "1.0, commit def", "Java 26");
    Run second = new Run(today, false, GPU, List.of());
    assertEquals("", earlier.difference(second));
    Run both = second.mergedWith(earlier.steps());
    assertEquals(first.tree().get("steps"), both.tree().get("steps"));
    List<String> lines = lines(both);
    assertTrue(lines.contains("Steps from earlier runs on the same kind of machine are marked."));
    assertTrue(
        lines.contains(
            "From the run of 2026-11-20 12:00:00 UTC, nccl4j 1.0, commit abc; Java 25."));
    assertTrue(lines.contains("| The title | **TIMED OUT** | 1.3 | killed |"));
  }

  @Test
  void stepWithoutResultDoesNotReplaceEarlierResult(@TempDir Path folder) throws IOException {
    Path json = folder.resolve("evidence.json");
    Run first = run(GPU, outcome(Outcome.Status.PASSED, "measured"));
    Files.writeString(json, JsonTree.text(first.tree()));
    Run.Earlier earlier = Run.Earlier.read(json);
    for (Outcome.Status status : List.of(Outcome.Status.NOT_RUN, Outcome.Status.RUNNING)) {
      Run later = run(GPU, outcome(status, "no time")).mergedWith(earlier.steps());
      assertEquals(first.tree().get("steps"), later.tree().get("steps"));
    }
    Run failed = run(GPU, outcome(Outcome.Status.FAILED, "wrong")).mergedWith(earlier.steps());
    assertEquals(List.of(Outcome.Status.FAILED), statuses(failed));
    Run still = run(GPU, outcome(Outcome.Status.NOT_RUN, "no time")).mergedWith(failed.steps());
    assertEquals(List.of(Outcome.Status.FAILED), statuses(still));
  }

  private static List<Outcome.Status> statuses(Run run) {
    return run.outcomes().stream().map(Outcome::status).toList();
  }

  /** It was ended before the machine was known. */
  @ParameterizedTest
  @EnumSource(names = {"RUNNING", "NOT_RUN", "TIMED_OUT"})
  void runOfUnknownMachineIsNoEarlierRun(Outcome.Status status, @TempDir Path folder)
      throws IOException {
    Path json = folder.resolve("evidence.json");
    Run killed = run(Machine.NONE, outcome(status, "since then"));
    assertEquals("device not known", killed.device());
    Files.writeString(json, JsonTree.text(killed.tree()));
    Run.Earlier earlier = Run.Earlier.read(json);
    assertEquals(List.of(), earlier.steps());
    assertEquals("", earlier.difference(run(GPU)));
  }

  @Test
  void runsOfOtherMachinesAreRejected(@TempDir Path folder) throws IOException {
    Path json = folder.resolve("evidence.json");
    Files.writeString(json, JsonTree.text(run(GPU, outcome(Outcome.Status.PASSED, "")).tree()));
    Run.Earlier earlier = Run.Earlier.read(json);
    assertEquals(
        "OUT has steps of a run where gpu is true, here it is false; use another directory",
        earlier.difference(run(STAND_IN)));
    Machine newer = machine(Libraries.NVIDIA, "2.30.7");
    Map<?, ?> standIn = run(STAND_IN).tree();
    Map<?, ?> emulated = run(machine(Libraries.EMULATED_CUDA, "2.30.7")).tree();
    assertNotEquals(standIn.get("libraries"), emulated.get("libraries"));
    assertEquals(
        "OUT has steps of a run where nccl is 2.28.9, here it is 2.30.7; use another directory",
        earlier.difference(run(newer)));
  }

  @Test
  void redactionReplacesOnlyPathsAndHost() {
    Redaction redaction =
        new Redaction()
            .folder(Path.of("/tmp/work"), "$WORK")
            .folder(Path.of("/home/somebody"), "~")
            .folder(Path.of("?"), "~")
            .word("node7", "$HOSTNAME");
    assertEquals(
        "-f=$WORK/a /tmp/working ~/b /x/home/somebody $HOSTNAME: node77 ?",
        redaction.apply(
            "-f=/tmp/work/a /tmp/working /home/somebody/b /x/home/somebody node7: node77 ?"));
    assertEquals(
        "$PYTHON/site-packages/nvidia/nccl/lib/libnccl.so.2",
        redaction.apply("/opt/env/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2"));
  }
}
