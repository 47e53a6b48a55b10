package io.nccl4j.tools.evidence;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests of steps that fail, crash or hang. */
@Tag("slow")
class StepRunnerTest {
  private static final Duration LONG = Duration.ofMinutes(1);

  @TempDir Path folder;
  private OutputStream log;
  private StepRunner runner;

  @BeforeEach
  void make() throws IOException {
    log = Files.newOutputStream(folder.resolve("log"));
    runner = new StepRunner(folder, log);
  }

  @AfterEach
  void close() throws IOException {
    runner.close();
    log.close();
  }

  private static Step.Command shell(String label, String script) {
    return new Step.Command(label, List.of("sh", "-c", script), Map.of(), null);
  }

  private Outcome run(Duration deadline, Step.Command... commands) {
    return runner.run(Step.of("step", "A step", deadline, commands));
  }

  /** Returns whether a process runs; a killed process may stay a zombie, which does not count. */
  private boolean alive(String pidFile) throws IOException {
    String pid = Files.readString(folder.resolve(pidFile)).strip();
    try {
      String stat = Files.readString(Path.of("/proc", pid, "stat"));
      return !stat.substring(stat.lastIndexOf(')')).startsWith(") Z");
    } catch (NoSuchFileException gone) {
      return false;
    }
  }

  /** Waits until a process is dead, which is shortly after it was killed. */
  private void awaitDead(String pidFile) throws IOException, InterruptedException {
    long limit = System.nanoTime() + LONG.toNanos();
    while (alive(pidFile)) {
      assertTrue(System.nanoTime() < limit, pidFile + " was not killed");
      Thread.sleep(10);
    }
  }

  @Test
  void successfulProcessPasses() {
    Outcome outcome = run(LONG, shell("process", "echo all done"));
    assertEquals(Outcome.Status.PASSED, outcome.status());
    assertEquals("all done", outcome.report().summary());
    assertEquals(Map.of("process", "all done"), outcome.output());
  }

  @Test
  void hungProcessIsKilledWithItsChildren() throws IOException, InterruptedException {
    String pids = "echo $$ > " + folder + "/parent; sleep 300 & echo $! > " + folder + "/child; ";
    long start = System.nanoTime();
    Outcome outcome = run(Duration.ofSeconds(5), shell("process", pids + "echo hello; wait"));
    assertEquals(Outcome.Status.TIMED_OUT, outcome.status());
    assertTrue(outcome.report().summary().startsWith("killed after 5 s: process"));
    assertTrue(System.nanoTime() - start < Duration.ofSeconds(60).toNanos());
    awaitDead("parent");
    awaitDead("child");
    assertEquals(Map.of("process", "hello"), outcome.output());
  }

  @Test
  void stacksOfHungJvmAreInTheLogOnly() throws IOException {
    List<String> words = new ArrayList<>(Java.command(Hanging.class.getName()));
    Map<String, String> environment = Map.of("CLASSPATH", Java.classPath());
    Outcome outcome =
        run(Duration.ofSeconds(8), new Step.Command("process", words, environment, null));
    assertEquals(Outcome.Status.TIMED_OUT, outcome.status());
    assertEquals(Map.of("process", "about to hang"), outcome.output());
    String log = Files.readString(folder.resolve("log"));
    assertTrue(log.contains("at " + Hanging.class.getName() + ".hang("), log);
  }

  /** A program that hangs. */
  static final class Hanging {
    private Hanging() {}

    public static void main(String[] args) throws InterruptedException {
      System.out.println("about to hang");
      hang();
    }

    private static void hang() throws InterruptedException {
      Thread.sleep(Duration.ofMinutes(5));
    }
  }

  @Test
  void lastLineOfOtherProgramIsItsSummary() throws IOException {
    Path file = folder.resolve("report.json");
    Report.of(Report.Verdict.PASSED, "ours is right").write(file);
    Step.Command ours = new Step.Command("rank 0", List.of("true"), Map.of(), file);
    Outcome outcome = run(LONG, ours, shell("rank 1", "seq 1 30; echo; echo mine too"));
    assertEquals(Outcome.Status.PASSED, outcome.status());
    assertEquals("ours is right; rank 1: mine too", outcome.report().summary());
    assertTrue(outcome.output().get("rank 1").startsWith("1\n2\n"), outcome.output()::toString);
  }

  @Test
  void bandwidthIsSummary() {
    String table = "echo '# Out of bounds values : 0 OK'; echo '# Avg bus bandwidth    : 12.5 '; ";
    Outcome outcome = run(LONG, shell("process", table + "echo '# Collective test concluded: x'"));
    assertEquals(
        "Out of bounds values : 0 OK; Avg bus bandwidth : 12.5", outcome.report().summary());
  }

  @Test
  void crashFileIsInTheLog() throws IOException {
    List<String> words =
        Java.command(Hanging.class.getName(), StepRunner.crashFile(folder.toAbsolutePath()));
    Map<String, String> environment = Map.of("CLASSPATH", Java.classPath());
    String script =
        "(until grep -q hang '"
            + folder
            + "/step.process.out'; do sleep 0.1; done; kill -SEGV $$) &"
            + " exec \"$@\"";
    List<String> command = new ArrayList<>(List.of("sh", "-c", script, "sh"));
    command.addAll(words);
    Outcome outcome = run(LONG, new Step.Command("process", command, environment, null));
    assertEquals(Outcome.Status.CRASHED, outcome.status(), outcome.report().summary());
    assertTrue(outcome.report().summary().startsWith("crashed in C  ["), outcome.report()::summary);
    String log = Files.readString(folder.resolve("log"));
    assertTrue(log.contains("---------------  S U M M A R Y"), log);
  }

  @Test
  void crashIsReportedWithItsSignal() {
    Outcome outcome = run(LONG, shell("process", "echo before; kill -SEGV $$"));
    assertEquals(Outcome.Status.CRASHED, outcome.status());
    assertEquals("killed by signal 11; before", outcome.report().summary());
  }

  @Test
  void failureIsReportedWithEndOfOutput() throws IOException {
    Outcome outcome = run(LONG, shell("process", "seq 1 100; echo bad luck >&2; exit 3"));
    assertEquals(Outcome.Status.FAILED, outcome.status());
    List<String> tail = outcome.output().get("process").lines().toList();
    assertEquals(60, tail.size());
    assertEquals("42", tail.getFirst());
    assertEquals("bad luck", tail.getLast());
    String log = Files.readString(folder.resolve("log"));
    assertTrue(log.startsWith("==== step, process: exit status 3\n1\n2\n"), log);
  }

  @Test
  void binaryOutputIsEscaped() {
    Outcome outcome = run(LONG, shell("process", "printf 'a\\000\\033[1mb\\377\\tc\\n'; exit 1"));
    assertEquals("a??[1mb\uFFFD\tc", outcome.output().get("process"));
    assertEquals("a??[1mb\uFFFD\tc", outcome.report().summary());
  }

  @Test
  void processThatCannotStartIsAFailure() {
    Step.Command missing = new Step.Command("process", List.of("/no/such/program"), Map.of(), null);
    Outcome outcome = run(LONG, missing);
    assertEquals(Outcome.Status.FAILED, outcome.status());
    assertTrue(outcome.report().summary().contains("/no/such/program"));
  }

  @Test
  void processWithFailedPeerIsKilledSoon() {
    long start = System.nanoTime();
    Outcome outcome = run(LONG, shell("rank 0", "sleep 300"), shell("rank 1", "exit 1"));
    assertEquals(Outcome.Status.FAILED, outcome.status());
    assertTrue(
        outcome.report().summary().startsWith("rank 0: killed after another process failed"),
        outcome.report().summary());
    assertTrue(System.nanoTime() - start < Duration.ofSeconds(40).toNanos());
  }

  @Test
  void crashOfOneProcessIsACrashOfTheStep() {
    Outcome outcome = run(LONG, shell("rank 0", "sleep 300"), shell("rank 1", "kill -ABRT $$"));
    assertEquals(Outcome.Status.CRASHED, outcome.status());
    assertTrue(outcome.report().summary().contains("rank 1: killed by signal 6"));
  }

  @Test
  void processWithoutReportFails() {
    Step.Command silent =
        new Step.Command("process", List.of("true"), Map.of(), folder.resolve("none.json"));
    Outcome outcome = run(LONG, silent);
    assertEquals(Outcome.Status.FAILED, outcome.status());
    assertEquals("exited without a report", outcome.report().summary());
  }

  @Test
  void killedProcessKeepsItsReport() throws IOException {
    Path file = folder.resolve("report.json");
    Report report =
        new Report(
            Report.Verdict.UNFINISHED,
            "3 of 5",
            Map.of("fact", "value"),
            List.of(new Table("a table", List.of("n", "x"), List.of(List.of(3L, 0.5)))),
            List.of("a note"));
    report.write(file);
    List<String> words = List.of("sh", "-c", "sleep 300");
    Step.Command ours = new Step.Command("process", words, Map.of(), file);
    Outcome outcome = run(Duration.ofSeconds(2), ours);
    assertEquals(Outcome.Status.TIMED_OUT, outcome.status());
    assertEquals("killed after 2 s: process; 3 of 5", outcome.report().summary());
    assertEquals(report.facts(), outcome.report().facts());
    assertEquals(report.tables(), outcome.report().tables());
    assertEquals(report.notes(), outcome.report().notes());
  }

  @Test
  void closedRunnerStartsNoProcess() {
    runner.close();
    assertThrows(
        IllegalStateException.class,
        () -> run(LONG, shell("process", "touch " + folder + "/started")));
    assertFalse(Files.exists(folder.resolve("started")));
  }

  @Test
  void impossibleStepIsNotRun() {
    Outcome outcome = runner.run(Step.notPossible("step", "A step", "no GPU"));
    assertEquals(Outcome.Status.NOT_POSSIBLE, outcome.status());
    assertEquals("no GPU", outcome.report().summary());
    assertFalse(outcome.status().bad());
  }

  @Test
  void stepWithoutProgressIsKilled() throws IOException {
    Path file = folder.resolve("report.json");
    Report.of(Report.Verdict.UNFINISHED, "1 of 9").write(folder.resolve("written.json"));
    // Three reports, a second apart, then none.
    String script =
        "for i in 1 2 3; do sleep 1; cp " + folder + "/written.json " + file + "; done; sleep 300";
    Step.Command ours = new Step.Command("process", List.of("sh", "-c", script), Map.of(), file);
    Step step = Step.of("step", "A step", LONG, ours).withSilence(Duration.ofSeconds(5));
    Outcome outcome = runner.run(step);
    assertEquals(Outcome.Status.TIMED_OUT, outcome.status());
    assertEquals("killed after 5 s without progress: process; 1 of 9", outcome.report().summary());
    assertTrue(outcome.seconds() > 7 && outcome.seconds() < 55, outcome.seconds() + " s");
  }

  @Test
  void processGetsDeadlineOfItsStep() throws IOException {
    Path file = folder.resolve("report.json");
    Report.of(Report.Verdict.PASSED, "fine").write(file);
    String script = "echo \"$@\" > " + folder + "/arguments";
    List<String> words = List.of("sh", "-c", script, "sh");
    Step.Command ours = new Step.Command("process", words, Map.of(), file);
    runner.run(Step.of("step", "A step", LONG, ours).withDeadline(Duration.ofSeconds(17)));
    assertEquals("--deadline 17\n", Files.readString(folder.resolve("arguments")));
  }
}
