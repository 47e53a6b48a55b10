package io.nccl4j.tools.evidence;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.fixtures.programs.FinishedProgram;
import io.nccl4j.fixtures.programs.StandIn;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Tests of the programs of the steps. Programs for several processes run with one rank, because the
 * ranks of the stand-in must share a process.
 */
@Tag("slow")
class ProgramsTest {
  private static final String REFERENCE_SUITE = "io.nccl4j.contract.ReferenceContractTest";

  @TempDir Path folder;

  @BeforeAll
  static void standIn() throws IOException, InterruptedException {
    StandIn.build();
  }

  private Outcome run(String... arguments) {
    return run(Map.of(), arguments);
  }

  private Outcome run(Map<String, String> variables, String... arguments) {
    Path report = folder.resolve("report.json");
    List<String> words =
        new ArrayList<>(
            Java.command(
                Child.class.getName(),
                "-Dio.nccl4j.nccl.library=" + StandIn.NCCL,
                "-Dio.nccl4j.cudart.library=" + StandIn.CUDART));
    words.addAll(List.of(arguments));
    words.addAll(List.of("--report", report.toString()));
    Map<String, String> environment = new HashMap<>(variables);
    environment.putIfAbsent("CLASSPATH", Java.classPath());
    return run(new Step.Command("process", words, environment, report));
  }

  private Outcome run(Step.Command... commands) {
    try (StepRunner runner = StepRunner.inside(folder)) {
      Duration deadline = Duration.ofMinutes(5);
      return runner.run(Step.of("step", "A step", deadline, commands));
    }
  }

  private static void assertPassed(Outcome outcome) {
    assertEquals(
        Outcome.Status.PASSED,
        outcome.status(),
        () -> outcome.report().summary() + outcome.report().notes() + outcome.output());
  }

  @Test
  void crossCheckComparesEverything() {
    Outcome outcome = run("cross-check", "--quick");
    assertPassed(outcome);
    Table table = outcome.report().tables().getFirst();
    assertEquals(13, table.columns().size());
    assertEquals(3 * 6 + 6, table.rows().size());
    for (List<Object> row : table.rows()) {
      // The last two types are float8, which NCCL does not scale for a single rank.
      boolean scales = row.getFirst().toString().matches(".* (avg|mulsum)");
      List<String> expected = new ArrayList<>(Collections.nCopies(12, "ok"));
      Collections.fill(expected.subList(10, 12), scales ? "left out" : "ok");
      assertEquals(expected, row.subList(1, 13), row.toString());
    }
    // Per type and count: 18 reductions and 4 moves in-place and out-of-place, 2 only out-of-place;
    // for float8 12 reductions.
    int float8 = 2 * 2 * 2 * 6;
    assertTrue(outcome.report().summary().startsWith(12 * 2 * (2 * 22 + 2) - float8 + " results"));
  }

  /** With a deadline of no seconds, programs that skip what they have no time for do nothing. */
  @ParameterizedTest
  @ValueSource(
      strings = {
        "cross-check",
        "nccl-tests --binaries FOLDER",
        "contract --topics Groups --suite io.nccl4j.contract.ReferenceContractTest"
      })
  void programThatDidNothingHasNotPassed(String program) throws IOException, InterruptedException {
    Path report = folder.resolve("report.json");
    List<String> words =
        new ArrayList<>(
            Java.command(
                Child.class.getName(),
                "-Dio.nccl4j.nccl.library=" + StandIn.NCCL,
                "-Dio.nccl4j.cudart.library=" + StandIn.CUDART));
    Path binary = Files.writeString(folder.resolve("all_reduce_perf"), "#!/bin/sh\n");
    assertTrue(binary.toFile().setExecutable(true));
    words.addAll(List.of(program.replace("FOLDER", folder.toString()).split(" ", -1)));
    words.addAll(List.of("--report", report.toString(), "--deadline", "0"));
    FinishedProgram ended = FinishedProgram.run(Map.of("CLASSPATH", Java.classPath()), words);
    assertEquals(1, ended.status(), ended.output());
    Report read = Report.read(report);
    assertEquals(Report.Verdict.FAILED, read.verdict(), read.summary());
    assertTrue(read.summary().endsWith("; nothing was measured or compared"), read.summary());
  }

  /** The stand-in reduces in rank order, whatever ring its log names. */
  @Test
  void predictionDetectsOtherOrder() throws IOException {
    Path log = folder.resolve("nccl.log");
    Files.writeString(log, "host:1:2 [0] NCCL INFO Channel 00/01 : 0 1 2 3\n");
    Outcome outcome =
        run(
            Map.of(
                "NCCL4J_STANDIN_DEVICES",
                "4",
                Prediction.ALGORITHM,
                "Ring",
                Prediction.PROTOCOL,
                "Simple",
                Prediction.LOG,
                log.toString()),
            "prediction",
            "--size",
            "4",
            "--quick");
    assertEquals(Outcome.Status.FAILED, outcome.status());
    Table table = outcome.report().tables().getLast();
    Map<Object, List<Object>> results =
        table.rows().stream().collect(Collectors.toMap(List::getFirst, row -> row));
    // Two counts on four ranks.
    assertEquals("**8**", results.get("sum").get(table.columns().indexOf("float32")));
    assertEquals("ok", results.get("sum").get(table.columns().indexOf("int32")));
    assertEquals(List.of("ok"), results.get("max").stream().skip(1).distinct().toList());
    assertTrue(outcome.report().notes().getFirst().contains(", predicted "));
  }

  /** On the reference backend, since the ranks of the stand-in are threads of one process. */
  @Test
  void contractRunsWithOneRankPerProcess() {
    Outcome outcome = run(contractRank(0), contractRank(1));
    assertPassed(outcome);
    List<Object> row = outcome.report().tables().getFirst().rows().getFirst();
    assertEquals(List.of("PointToPoint", "passed"), row.subList(0, 2));
    assertTrue((long) row.get(2) >= 5, row.toString());
    assertEquals(0L, row.get(3), row.toString());
  }

  @Test
  void contractTopicsShareAProcess() {
    Outcome outcome = run("contract", "--suite", REFERENCE_SUITE, "--quick", "--size", "2");
    assertPassed(outcome);
    assertEquals("1", outcome.report().facts().get("processes"));
    Table table = outcome.report().tables().getFirst();
    assertEquals(
        List.of("Backends", "Groups", "PointToPoint"),
        table.rows().stream().map(List::getFirst).toList());
    for (List<Object> row : table.rows()) {
      assertEquals("passed", row.get(1), row.toString());
      assertTrue((long) row.get(2) > 0, row.toString());
    }
  }

  /** The first topic kills its process, the second fails, the third passes. */
  @Test
  void brokenTopicAffectsNoOther() {
    Outcome outcome =
        run(
            Map.of(),
            "contract",
            "--suite",
            BrokenSuite.class.getName(),
            "--topics",
            "Collectives,Groups,PointToPoint");
    assertEquals(Outcome.Status.FAILED, outcome.status());
    assertEquals("3", outcome.report().facts().get("processes"));
    assertEquals(
        List.of(
            List.of("Collectives", "CRASHED", 1L, 0L, 0L),
            List.of("Groups", "FAILED", 1L, 1L, 0L),
            List.of("PointToPoint", "passed", 1L, 0L, 0L)),
        outcome.report().tables().getFirst().rows().stream()
            .map(row -> row.subList(0, 5))
            .toList());
    assertEquals(
        "3 passed, 1 failed, 0 skipped; not passed: Collectives, Groups",
        outcome.report().summary());
  }

  @Test
  void topicWithoutTimeKeepsItsResults() {
    Map<String, String> facts =
        Map.of("topic", "Groups", "passed", "12", "failed", "0", "skipped", "3");
    assertEquals(
        List.of("Groups", "not finished", 12L, 0L, 3L, ""),
        ContractSuite.brokenRow("Groups", ended(Outcome.Status.TIMED_OUT, facts), true));
    assertEquals(
        List.of("Groups", "TIMED OUT", 12L, 0L, 3L, ""),
        ContractSuite.brokenRow("Groups", ended(Outcome.Status.TIMED_OUT, facts), false));
    assertEquals(
        List.of("Groups", "CRASHED", 12L, 0L, 3L, ""),
        ContractSuite.brokenRow("Groups", ended(Outcome.Status.CRASHED, facts), true));
    Map<String, String> failed = new HashMap<>(facts);
    failed.put("failed", "1");
    assertEquals(
        List.of("Groups", "TIMED OUT", 12L, 1L, 3L, ""),
        ContractSuite.brokenRow("Groups", ended(Outcome.Status.TIMED_OUT, failed), true));
    assertEquals(
        List.of("Split", "not finished", 0L, 0L, 0L, ""),
        ContractSuite.brokenRow("Split", ended(Outcome.Status.TIMED_OUT, facts), true));
  }

  private static Outcome ended(Outcome.Status status, Map<String, String> facts) {
    Report report = new Report(Report.Verdict.UNFINISHED, "", facts, List.of(), List.of());
    return new Outcome(Step.of("topics", "topics", Duration.ZERO), status, report, 0, Map.of());
  }

  @Test
  void ncclTestsAreCompared() throws IOException {
    Path programs = Files.createDirectory(folder.resolve("tests"));
    Path program = programs.resolve("all_reduce_perf");
    Files.writeString(
        program,
        "#!/bin/sh\nexec '%s' -cp '%s' io.nccl4j.tools.perf.Perf all_reduce --backend reference \"$@\"\n"
            .formatted(Path.of(System.getProperty("java.home"), "bin", "java"), Java.classPath()));
    assertTrue(program.toFile().setExecutable(true));
    String[] arguments = {"nccl-tests", "--quick", "--size", "2", "--binaries", "" + programs};
    Outcome outcome = run(Map.of("NCCL4J_STANDIN_DEVICES", "2"), arguments);
    assertPassed(outcome);
    assertEquals(1, outcome.report().tables().size());
    assertEquals(
        List.of(8L, 64L, 512L, 4096L),
        outcome.report().tables().getFirst().rows().stream().map(List::getFirst).toList());
  }

  private Step.Command contractRank(int rank) {
    Path report = folder.resolve("report" + rank + ".json");
    List<String> words = new ArrayList<>(Java.command(Child.class.getName()));
    words.addAll(List.of("contract", "--suite", REFERENCE_SUITE));
    words.addAll(
        List.of("--meet", "" + folder.resolve("meet"), "--report", "" + report, "--quick"));
    Map<String, String> environment =
        Map.of("CLASSPATH", Java.classPath(), "NCCL4J_RANK", "" + rank, "NCCL4J_WORLD_SIZE", "2");
    return new Step.Command("rank " + rank, words, environment, report);
  }

  @Test
  void javaRankPublishesIdAndChecksSums() throws IOException {
    Path id = folder.resolve("id");
    Outcome outcome = run("interop", "--meet", id.toString());
    assertPassed(outcome);
    assertEquals(128, Files.size(id));
    assertEquals(5, outcome.report().tables().getFirst().rows().size());
  }

  @Test
  void pythonRankReadsIdAndChecksSums() throws IOException {
    assumePython();
    try (InputStream script = Interop.class.getResourceAsStream(Interop.SCRIPT)) {
      Files.copy(script, folder.resolve(Interop.SCRIPT));
    }
    // The stand-in accepts only ids of the same process, so this process creates it.
    Path main = folder.resolve("main.py");
    Files.writeString(
        main,
        """
        import ctypes, sys
        import all_reduce
        cudart, nccl, path = sys.argv[1:4]
        ctypes.CDLL(cudart, mode=ctypes.RTLD_GLOBAL)
        unique_id = all_reduce.UniqueId()
        assert ctypes.CDLL(nccl).ncclGetUniqueId(ctypes.byref(unique_id)) == 0
        with open(path, "wb") as file:
            file.write(bytes(unique_id))
        sys.argv = [sys.argv[0], "--id", path, "--rank", "0", "--size", "1", "--deadline", "60",
                    "--with", "ctypes", "--nccl", nccl, "--cudart", cudart]
        sys.exit(all_reduce.main())
        """);
    Path id = folder.resolve("id");
    Outcome outcome =
        run(
            new Step.Command(
                "process",
                List.of("python3", main + "", StandIn.CUDART + "", StandIn.NCCL + "", id + ""),
                Map.of("PYTHONDONTWRITEBYTECODE", "1"),
                null));
    assertPassed(outcome);
    String output = outcome.output().get("process");
    assertTrue(output.startsWith("sum of 1 int32: 0 wrong elements\n"), output);
    assertTrue(outcome.report().summary().endsWith("ctypes, NCCL 23007: 0 wrong elements"));
  }

  private static void assumePython() {
    boolean installed = EvidencePlan.onPath("python3", System.getenv()).isPresent();
    assumeTrue(
        installed || "1".equals(System.getenv("REQUIRE_NCCL")), "python3 is not on the PATH");
  }

  @Test
  void failedProgramReportsReason() {
    Outcome outcome = run("contract", "--suite", "no.such.Suite");
    assertEquals(Outcome.Status.FAILED, outcome.status());
    assertTrue(
        outcome.report().summary().startsWith("ClassNotFoundException"),
        outcome.report().summary());
  }
}
