package io.nccl4j.tools.evidence;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.tools.cli.JsonTree;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Tests of the page and the JSON of a run. */
class PageTest {
  private static final Machine GPU = machine(Libraries.NVIDIA, "2.28.9");
  private static final Machine STAND_IN = machine(Libraries.STAND_IN, "2.30.7");

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
    Map<String, String> output = status.bad() ? Map.of("rank 0", "last words") : Map.of();
    return new Outcome(step, status, report, 1.26, output);
  }

  private static Run run(Machine machine, Outcome... outcomes) {
    return new Run("2026-11-20 12:00:00 UTC", "1.0, commit abc", false, machine, List.of(outcomes));
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
            "Written by `nccl4j evidence` on 2026-11-20 12:00:00 UTC, from nccl4j 1.0, commit"
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
    assertTrue(lines.contains("/opt/java -flag"));
    assertTrue(lines.contains("NCCL_NET=Socket $JAVA io.nccl4j.tools.evidence.Child device"));
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

  /** It was ended before the machine was known. */
  @ParameterizedTest
  @EnumSource(names = {"RUNNING", "NOT_RUN", "TIMED_OUT"})
  void deviceOfUnfinishedFirstStepIsNotKnown(Outcome.Status status) {
    assertEquals("device not known", run(Machine.NONE, outcome(status, "since then")).device());
  }

  @Test
  void jsonMatchesPage() throws IOException {
    Run run = run(STAND_IN, outcome(Outcome.Status.CRASHED, "killed by signal 11"));
    Map<?, ?> json = (Map<?, ?>) JsonTree.parse(JsonTree.text(run.tree()));
    assertEquals(false, json.get("gpu"));
    assertEquals("a test fixture, not NCCL, no GPU", json.get("libraries"));
    assertEquals(false, json.get("passed"));
    assertEquals("1.0, commit abc", json.get("build"));
    assertEquals("2026-11-20 12:00:00 UTC", json.get("date"));
    assertEquals(1L, json.get("devices"));
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
  }
}
