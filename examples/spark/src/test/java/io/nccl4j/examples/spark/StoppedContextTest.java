package io.nccl4j.examples.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.time.Duration;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaSparkContext;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import picocli.CommandLine;

/** Spark stops while ranks wait for slots, as it does if it cannot reach its master. */
@Tag("slow")
class StoppedContextTest {
  @Test
  @Timeout(value = 2, unit = TimeUnit.MINUTES)
  void jobFailsIfSparkStopsBeforeRanksStart() throws InterruptedException {
    Flags flags = new Flags();
    new CommandLine(flags)
        .setCaseInsensitiveEnumValuesAllowed(true)
        .parseArgs("--master", "local[1]");
    SparkConf settings =
        Cluster.settings(flags)
            .set("spark.scheduler.barrier.maxConcurrentTasksCheck.interval", "1h");
    try (JavaSparkContext spark = new JavaSparkContext(settings)) {
      FutureTask<Integer> job = new FutureTask<>(() -> twoRanks(spark));
      Thread ranks = Thread.ofPlatform().daemon().start(job);
      while (ranks.getState() != Thread.State.TIMED_WAITING) {
        Thread.sleep(20);
      }
      spark.stop();
      ExecutionException ended = assertThrows(ExecutionException.class, job::get);
      assertEquals(
          "SparkContext was shut down before any rank started", ended.getCause().getMessage());
    }
  }

  private static Integer twoRanks(JavaSparkContext spark) {
    return BarrierStage.run(
            new LeastSquares(100, 2, 7).rows(spark.sc(), 2),
            BackendChoice.REFERENCE,
            Duration.ofMinutes(10),
            (communicator, data, context) -> communicator.rank())
        .getFirst();
  }
}
