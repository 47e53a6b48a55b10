package io.nccl4j.examples.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.tools.cli.Commands;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkConf;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(value = 3, unit = TimeUnit.MINUTES)
class SparkFitTest {
  private final ByteArrayOutputStream out = new ByteArrayOutputStream();
  private final ByteArrayOutputStream err = new ByteArrayOutputStream();

  private int run(String... args) {
    return new SparkFit(print(out), print(err)).run(args);
  }

  private static PrintStream print(ByteArrayOutputStream to) {
    return new PrintStream(to, true, StandardCharsets.UTF_8);
  }

  private void assertRejects(String message, String... args) {
    err.reset();
    assertEquals(Commands.BAD_ARGUMENTS, run(args), err.toString(StandardCharsets.UTF_8));
    String printed = err.toString(StandardCharsets.UTF_8);
    assertTrue(printed.startsWith("spark-fit: " + message), printed);
    assertEquals("", out.toString(StandardCharsets.UTF_8));
  }

  @Test
  void localTasksFitLikeOneRank() {
    int status = run("--master", "local[3]", "--ranks", "3", "--rows", "3001", "--features", "5");
    assertEquals("", err.toString(StandardCharsets.UTF_8));
    String text = out.toString(StandardCharsets.UTF_8);
    assertTrue(text.contains("largest difference of 3 ranks from one rank: "), text);
    assertTrue(text.endsWith(": OK\n"), text);
    assertEquals(3, text.lines().filter(line -> line.contains("reference 0")).count(), text);
    assertEquals(Commands.OK, status);
  }

  @Test
  void moreRanksThanSlotsEndWithOneLine() {
    assertEquals(Commands.FAILED, run("--master", "local[1]", "--ranks", "2"));
    assertEquals(
        "spark-fit: there are 2 ranks, which must run at once; the cluster has slots for 1\n",
        err.toString(StandardCharsets.UTF_8));
  }

  @Test
  void invalidArgumentsAreNamed() {
    assertRejects("--ranks is 0; it must be from 1 to 10000", "--ranks", "0");
    assertRejects(
        "Invalid value for option '--rows': '1e6' is not a whole number", "--rows", "1e6");
    assertRejects(
        "Invalid value for option '--backend': expected one of [AUTO, NCCL, REFERENCE] (case-insensitive) but was 'gloo'",
        "--backend",
        "gloo");
    assertRejects("Unknown option: '--gpu'", "--gpu");
    assertRejects(
        "--rows is 3, fewer than --ranks 4; each rank needs a row",
        "--rows",
        "3",
        "--features",
        "1");
    assertRejects(
        "--rows is 30; it must be at least twice --features, which is 20", "--rows", "30");
    assertRejects("--kill-at is 40; it must be less than --steps, which is 40", "--kill-at", "40");
    assertRejects(
        "--kill-at would end the driver's process: --master local[4] has no separate executors",
        "--kill-at",
        "3",
        "--master",
        "local[4]");
    assertRejects(
        "--backend nccl needs a GPU for each task, but spark.task.resource.gpu.amount is not set",
        "--backend",
        "nccl");
  }

  @Test
  void failureReasonIsPrintedWithoutStackTrace() {
    assertEquals(
        "Stage failed because of task 3. java.lang.IllegalStateException: rank 3 is tired",
        Attempts.withoutStack(
            """
            Stage failed because of task 3.
            java.lang.IllegalStateException: rank 3 is tired
            \tat io.nccl4j.Some.method(Some.java:3)
            Caused by: more
            """));
    assertEquals("x".repeat(400) + "...", Attempts.withoutStack("x".repeat(1000)));
  }

  @Test
  void unreachableMasterIsNamed() {
    SparkConf settings = new SparkConf(false).set("spark.master", "spark://localhost:1");
    assertEquals(
        "Spark stopped: its master spark://localhost:1 could not be reached or was lost",
        SparkFit.reason("SparkContext has been shutdown", settings));
    assertEquals("rank 3 is tired", SparkFit.reason("rank 3 is tired", settings));
  }

  @Test
  void helpIsPrinted() {
    assertEquals(Commands.OK, run("--help"));
    assertTrue(out.toString(StandardCharsets.UTF_8).contains("--kill-at=STEP"));
  }
}
