package io.nccl4j.examples.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.fixtures.programs.StandIn;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.spark.BarrierTaskContext;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkException;
import org.apache.spark.api.java.JavaSparkContext;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import picocli.CommandLine;
import scala.Tuple2;

/**
 * Stages on two executor processes with two slots each. A discovery script reports GPUs 2 and 3 for
 * both; only the stand-in uses them.
 */
@Timeout(value = 3, unit = TimeUnit.MINUTES)
@Tag("slow")
class BarrierStageTest {
  /** Far longer than any test; ranks do not wait for a failed rank. */
  private static final Duration LONG = Duration.ofMinutes(10);

  private static final LeastSquares DATA = new LeastSquares(10_000, 8, 7);
  private static final int STEPS = 30;

  private static JavaSparkContext spark;

  @BeforeAll
  static void startExecutors(@TempDir Path folder) throws IOException {
    Files.createDirectories(Path.of(System.getenv("SPARK_HOME"), "jars"));
    Path discovery = folder.resolve("discover-gpus");
    Files.writeString(
        discovery, "#!/bin/sh\necho '{\"name\": \"gpu\", \"addresses\": [\"2\", \"3\"]}'\n");
    Files.setPosixFilePermissions(discovery, PosixFilePermissions.fromString("rwx------"));
    Flags flags = new Flags();
    new CommandLine(flags)
        .setCaseInsensitiveEnumValuesAllowed(true)
        .parseArgs("--master", "local-cluster[2,2,1024]");
    SparkConf settings =
        Cluster.settings(flags)
            .set("spark.worker.resource.gpu.amount", "2")
            .set("spark.worker.resource.gpu.discoveryScript", discovery.toString())
            .set("spark.executor.resource.gpu.amount", "2")
            .set("spark.task.resource.gpu.amount", "1")
            .set("spark.executorEnv.NCCL4J_NCCL_LIBRARY", StandIn.NCCL.toString())
            .set("spark.executorEnv.NCCL4J_CUDART_LIBRARY", StandIn.CUDART.toString())
            .set(
                "spark.executor.extraJavaOptions",
                "--enable-native-access=ALL-UNNAMED -XX:+UseSerialGC -XX:TieredStopAtLevel=1");
    spark = new JavaSparkContext(settings);
  }

  @AfterAll
  static void stopExecutors() {
    if (spark != null) {
      spark.close();
    }
  }

  private static List<RankFit> fit(int ranks, BackendChoice backend, int killAt) {
    return BarrierStage.run(
        DATA.rows(spark.sc(), ranks), backend, LONG, new Fit(DATA.features(), STEPS, killAt));
  }

  private static void assertCorrect(List<RankFit> ranks) {
    RankFit one = fit(1, BackendChoice.REFERENCE, Fit.NEVER).getFirst();
    Comparison comparison = Comparison.of(DATA, ranks, one);
    assertTrue(comparison.allowed() < 1e-8, comparison.toString());
    assertTrue(comparison.holds(), comparison.toString());
    // Six standard errors of a coefficient.
    double found = 6 * LeastSquares.NOISE / Math.sqrt((double) DATA.rows());
    assertTrue(comparison.toGenerated() < found, comparison.toString());
    assertEquals(DATA.rows(), ranks.stream().mapToLong(RankFit::rows).sum());
  }

  @Test
  void fourRanksInTwoProcessesFindWhatOneRankFinds() {
    List<RankFit> ranks = fit(4, BackendChoice.REFERENCE, Fit.NEVER);
    assertEquals(List.of(0, 1, 2, 3), ranks.stream().map(RankFit::rank).toList());
    Set<Long> processes = ranks.stream().map(RankFit::process).collect(Collectors.toSet());
    assertEquals(2, processes.size(), ranks.toString());
    assertFalse(processes.contains(ProcessHandle.current().pid()), ranks.toString());
    assertEquals(Set.of(0), attempts(ranks));
    assertCorrect(ranks);
  }

  @Test
  void lostExecutorIsReplacedAndTheFitSucceeds() {
    List<RankFit> ranks = fit(4, BackendChoice.REFERENCE, 3);
    assertEquals(Set.of(1), attempts(ranks));
    assertCorrect(ranks);
  }

  private static Set<Integer> attempts(List<RankFit> ranks) {
    return ranks.stream().map(RankFit::attempt).collect(Collectors.toSet());
  }

  private static float sumOfOnes(Communicator communicator) {
    float[] one = {1};
    try (Stream stream = communicator.newStream();
        Buffer buffer = communicator.newBuffer(DataType.FLOAT32, 1)) {
      buffer.copyFromAsync(MemorySegment.ofArray(one), stream);
      communicator.allReduce(buffer, buffer, ReduceOp.SUM, stream);
      buffer.copyTo(MemorySegment.ofArray(one), stream);
    }
    return one[0];
  }

  private static String throwsOnce(
      Communicator communicator, Iterator<double[]> data, BarrierTaskContext context) {
    float first = sumOfOnes(communicator);
    if (context.stageAttemptNumber() == 0 && communicator.rank() == 2) {
      throw new IllegalStateException("rank 2 gives up");
    }
    return context.stageAttemptNumber() + ": " + (first + sumOfOnes(communicator));
  }

  @Test
  void failedRankMakesAllRetryWithANewCommunicator() {
    List<String> sums =
        BarrierStage.run(
            DATA.rows(spark.sc(), 4), BackendChoice.REFERENCE, LONG, BarrierStageTest::throwsOnce);
    assertEquals(List.of("1: 8.0", "1: 8.0", "1: 8.0", "1: 8.0"), sums);
  }

  private static String throwsAlways(
      Communicator communicator, Iterator<double[]> data, BarrierTaskContext context) {
    if (communicator.rank() == 1) {
      throw new IllegalStateException("rank 1 always fails");
    }
    return "" + sumOfOnes(communicator);
  }

  @Test
  void rankThatAlwaysFailsEndsTheJobWithItsReason() {
    SparkException failed =
        assertThrows(
            SparkException.class,
            () ->
                BarrierStage.run(
                    DATA.rows(spark.sc(), 2),
                    BackendChoice.REFERENCE,
                    LONG,
                    BarrierStageTest::throwsAlways));
    String message = failed.getMessage();
    assertTrue(message.contains("maximum allowable number of times: 4"), message);
    assertTrue(message.contains("rank 1"), message);
  }

  /** Waits for a message that is never sent. */
  private static String waits(Communicator communicator, String folder) throws IOException {
    try (Stream stream = communicator.newStream();
        Buffer buffer = communicator.newBuffer(DataType.FLOAT32, 1)) {
      communicator.recv(buffer, 1 - communicator.rank(), stream);
      Files.createFile(Path.of(folder, "rank-" + communicator.rank()));
      stream.synchronize();
    }
    return "received";
  }

  @Test
  void cancelledJobReleasesWaitingRanks(@TempDir Path folder) throws Exception {
    String path = folder.toString();
    FutureTask<List<String>> job =
        new FutureTask<>(
            () -> {
              spark.setJobGroup("waits", "ranks that wait for each other", false);
              return BarrierStage.run(
                  DATA.rows(spark.sc(), 2),
                  BackendChoice.REFERENCE,
                  LONG,
                  (communicator, data, context) -> waits(communicator, path));
            });
    Thread.ofPlatform().daemon().start(job);
    while (!Files.exists(folder.resolve("rank-0")) || !Files.exists(folder.resolve("rank-1"))) {
      Thread.sleep(20);
    }
    spark.cancelJobGroup("waits");
    ExecutionException ended = assertThrows(ExecutionException.class, job::get);
    assertTrue(ended.getMessage().contains("cancelled"), ended.getMessage());
    // This needs all slots.
    assertCorrect(fit(4, BackendChoice.REFERENCE, Fit.NEVER));
  }

  private static Tuple2<Long, Integer> gpuOf(
      Communicator communicator, Iterator<double[]> data, BarrierTaskContext context) {
    int gpu = GpuAddress.of(context.resourcesJMap()).getAsInt();
    return new Tuple2<>(ProcessHandle.current().pid(), gpu);
  }

  @Test
  void tasksOfAnExecutorHaveDifferentGpus() {
    List<Tuple2<Long, Integer>> gpus =
        BarrierStage.run(
            DATA.rows(spark.sc(), 4), BackendChoice.REFERENCE, LONG, BarrierStageTest::gpuOf);
    Map<Long, Set<Integer>> gpusByProcess = new HashMap<>();
    for (Tuple2<Long, Integer> gpu : gpus) {
      gpusByProcess.computeIfAbsent(gpu._1(), process -> new TreeSet<>()).add(gpu._2());
    }
    assertEquals(List.of(Set.of(2, 3), Set.of(2, 3)), List.copyOf(gpusByProcess.values()));
  }

  @Test
  void taskWithAGpuUsesNccl() throws IOException, InterruptedException {
    StandIn.build();
    List<RankFit> ranks = fit(1, BackendChoice.AUTO, Fit.NEVER);
    assertTrue(ranks.getFirst().device().matches("nccl [23]"), ranks.toString());
    assertCorrect(ranks);
  }

  @Test
  void moreRanksThanSlotsAreRejected() {
    IllegalStateException thrown =
        assertThrows(IllegalStateException.class, () -> fit(5, BackendChoice.REFERENCE, Fit.NEVER));
    assertEquals(
        "there are 5 ranks, which must run at once; the cluster has slots for 4",
        thrown.getMessage());
  }

  @Test
  void zeroTimeoutIsRejected() {
    IllegalArgumentException thrown =
        assertThrows(
            IllegalArgumentException.class,
            () ->
                BarrierStage.run(
                    DATA.rows(spark.sc(), 1),
                    BackendChoice.REFERENCE,
                    Duration.ZERO,
                    BarrierStageTest::throwsOnce));
    assertEquals("timeout is PT0S; it must be positive", thrown.getMessage());
  }
}
