package io.nccl4j.tools.evidence;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.tools.cli.JsonTree;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests the page of a run on the emulated CUDA, from reports as its steps write them. */
class EmulatedPageTest {
  private static final Run.RunSource SOURCE =
      new Run.RunSource("2026-11-20 12:00:00 UTC", "1.0, commit abc with changes", "Java 25");

  private static final Map<String, String> FACTS =
      Map.of("NCCL", "2.30.7", "CUDA runtime", "13.0", "Java", "25.0.3", "processors", "2");

  @TempDir Path folder;

  private static Outcome outcome(String name, Outcome.Status status, Report report) {
    Step step = Step.of(name, "The " + name, Duration.ofSeconds(9));
    return new Outcome(step, status, report, 61.4, Map.of());
  }

  private static Report report(String summary, List<Table> tables, String... notes) {
    return new Report(Report.Verdict.PASSED, summary, Map.of(), tables, List.of(notes));
  }

  private static EmulatedResult contract(Outcome.Status status, String... notes) {
    Table topics =
        new Table(
            "tests by topic",
            ContractSuite.COLUMNS,
            List.of(
                List.of("Groups", "passed", 20L, 0L, 3L, 1.5),
                List.of("Split", "passed", 5L, 0L, 0L, 0.5)));
    return EmulatedResult.ofContract(
        outcome(
            "contract", status, report("25 passed, 0 failed, 3 skipped", List.of(topics), notes)));
  }

  private static List<String> lines(EmulatedResult... results) {
    return EmulatedPage.of(SOURCE, FACTS, List.of(results)).lines().toList();
  }

  @Test
  void pageSaysWhatItIsNot() {
    List<String> lines = lines();
    assertEquals("# NCCL 2.30.7 on the emulated CUDA", lines.getFirst());
    assertTrue(lines.get(2).startsWith("> **This is not a GPU result**"), lines.get(2));
    assertTrue(lines.get(3).contains("not NVIDIA's"), lines.get(3));
    assertTrue(
        lines.contains(
            "Written by `scripts/lib/emulated-evidence` on 2026-11-20 12:00:00 UTC, from nccl4j 1.0,"
                + " commit abc with changes. Not edited."));
    assertTrue(lines.contains("| CUDA headers and emulated runtime | 13.0 |"));
    assertTrue(lines.contains("| processors | 2 |"));
  }

  @Test
  void skippedTestsHaveTheirReasons() {
    List<String> lines =
        lines(
            contract(
                Outcome.Status.PASSED,
                "skipped 1: there is a GPU",
                "skipped 2: needs | ranks",
                "skipped 2: there is a GPU"));
    assertTrue(lines.contains("| The contract | passed | 28 | 25 | 0 | 3 | 61 |"));
    assertTrue(lines.contains("| The contract | 3 | there is a GPU |"));
    assertTrue(lines.contains("| The contract | 2 | needs \\| ranks |"));
    assertFalse(lines.contains("## Failures"));
  }

  @Test
  void failedStepStaysOnThePage() {
    List<String> lines =
        lines(
            contract(Outcome.Status.FAILED, "FAILED splits: expected 1"),
            EmulatedResult.ofBits(
                outcome("bits-ring", Outcome.Status.TIMED_OUT, report("killed", List.of()))));
    assertTrue(lines.contains("| The contract | **FAILED** | 28 | 25 | 0 | 3 | 61 |"));
    assertTrue(lines.contains("- FAILED splits: expected 1"));
    assertTrue(lines.contains("| The bits-ring | **TIMED OUT** |  |"));
    assertTrue(lines.contains("**TIMED OUT**: killed"));
  }

  @Test
  void incompleteSuiteIsAFailure() {
    Table topics = new Table("tests", ContractSuite.COLUMNS, List.of());
    String summary = "9 passed, 0 failed, 0 skipped; not finished: Groups";
    EmulatedResult result =
        EmulatedResult.ofContract(
            outcome("contract", Outcome.Status.PASSED, report(summary, List.of(topics))));
    assertTrue(lines(result).contains("**FAILED**: " + summary));
  }

  @Test
  void skipsOfOtherRanksAreNotCounted() {
    List<String> lines =
        lines(contract(Outcome.Status.FAILED, "skipped 3: a", "rank 1: skipped 2: a"));
    assertTrue(lines.contains("| The contract | 3 | a |"));
    assertFalse(lines.contains("- rank 1: skipped 2: a"));
  }

  @Test
  void passedStepWithoutReportIsAFailure() throws IOException {
    Outcome passed = outcome("step", Outcome.Status.PASSED, report("", List.of()));
    Path none = folder.resolve("none");
    for (EmulatedResult result :
        List.of(
            EmulatedResult.ofPlanner(passed, none),
            EmulatedResult.ofEvidence(passed, none),
            EmulatedResult.ofBits(passed))) {
      assertEquals(Outcome.Status.FAILED, result.outcome().status());
    }
  }

  @Test
  void comparedBitsAreCounted() {
    String summary = "720 results compared with the prediction bit for bit, 2 differ; more";
    EmulatedResult bits =
        EmulatedResult.ofBits(
            outcome("bits-ring", Outcome.Status.FAILED, report(summary, List.of())));
    assertTrue(lines(bits).contains("| The bits-ring | 720 | **2** |"));
  }

  @Test
  void plannerTestIsReadFromItsReport() throws IOException {
    Path xml = folder.resolve("TEST-PlannerTest.xml");
    Files.writeString(
        xml,
        """
        <testsuite name="PlannerTest" time="2.6" tests="4" errors="0" skipped="1" failures="1" \
        flakes="0">
          <testcase name="rings()[1]" classname="PlannerTest" time="2.0">
            <system-out><![CDATA[random data: -Dtest.seed=39
        all-reduce, RING, LL: 1050 collectives, 14961 lines, 0 different
        ]]></system-out>
          </testcase>
          <testcase name="rings()[2]" classname="PlannerTest" time="0.3">
            <skipped message="no LL128"/>
          </testcase>
          <testcase name="rings()[3]" classname="PlannerTest" time="0.3">
            <failure message="9 ranks: predicted 1, planned 2" type="AssertionError">text</failure>
            <system-out><![CDATA[reduce, TREE, 3 hosts: 150 collectives, 672 lines, 4 different
        ]]></system-out>
          </testcase>
        </testsuite>
        """);
    Outcome outcome = outcome("PlannerTest", Outcome.Status.FAILED, report("", List.of()));
    List<String> lines = lines(EmulatedResult.ofPlanner(outcome, xml));
    assertTrue(lines.contains("| The PlannerTest | **FAILED** | 4 | 2 | 1 | 1 | 61 |"));
    assertTrue(lines.contains("| all-reduce, RING, LL: 1050 collectives | 14961 | 0 |"));
    assertTrue(lines.contains("| reduce, TREE, 3 hosts: 150 collectives | 672 | **4** |"));
    assertTrue(lines.contains("- rings()[3]: 9 ranks: predicted 1, planned 2"));
    assertTrue(lines.contains("| The PlannerTest | 1 | no LL128 |"));
    Outcome broken =
        outcome("PlannerTest", Outcome.Status.FAILED, report("", List.of(), "mvn: no"));
    lines = lines(EmulatedResult.ofPlanner(broken, folder.resolve("none.xml")));
    assertTrue(lines.contains("| The PlannerTest | **FAILED** | unknown |  |  |  | 61 |"));
    assertTrue(lines.contains("- mvn: no"));
  }

  @Test
  void evidenceIsReadFromItsResults() throws IOException {
    List<Run.Recorded> steps =
        List.of(
            recorded("device", Outcome.Status.PASSED, "fine"),
            recorded("latency", Outcome.Status.CRASHED, "killed by signal 11"),
            recorded("bandwidth-sweep", Outcome.Status.NOT_POSSIBLE, "needs several GPUs"));
    Path json = folder.resolve("evidence.json");
    Run run = new Run(SOURCE, true, Machine.NONE, steps);
    Files.writeString(json, JsonTree.text(run.tree()));
    Outcome outcome = outcome("evidence-1", Outcome.Status.FAILED, report("", List.of()));
    List<String> lines = lines(EmulatedResult.ofEvidence(outcome, json));
    assertTrue(lines.contains("| The evidence-1 | **FAILED** | 3 | 1 | 1 | 1 | 61 |"));
    assertTrue(lines.contains("| The evidence-1 | 1 | bandwidth-sweep: needs several GPUs |"));
    assertTrue(lines.contains("- latency: CRASHED: killed by signal 11"));
  }

  private static Run.Recorded recorded(String name, Outcome.Status status, String summary) {
    return new Run.Recorded(outcome(name, status, report(summary, List.of())), SOURCE);
  }
}
