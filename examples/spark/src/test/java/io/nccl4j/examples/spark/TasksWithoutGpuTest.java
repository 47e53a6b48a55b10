package io.nccl4j.examples.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkException;
import org.apache.spark.api.java.JavaSparkContext;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Tasks in this process, without GPUs. */
@Timeout(value = 3, unit = TimeUnit.MINUTES)
@Tag("slow")
class TasksWithoutGpuTest {
  private static final LeastSquares DATA = new LeastSquares(100, 2, 3);

  private JavaSparkContext spark;

  @BeforeEach
  void startSpark() {
    SparkConf settings = new SparkConf().set("spark.ui.enabled", "false");
    spark = new JavaSparkContext("local[2]", "no GPU", settings);
  }

  @AfterEach
  void stopSpark() {
    spark.close();
  }

  private List<RankFit> fit(BackendChoice backend) {
    return BarrierStage.run(
        DATA.rows(spark.sc(), 2), backend, Duration.ofMinutes(2), new Fit(2, 3, Fit.NEVER));
  }

  @Test
  void tasksUseTheReferenceUnlessNcclIsRequired() {
    assertEquals(
        List.of("reference 0", "reference 0"),
        fit(BackendChoice.AUTO).stream().map(RankFit::device).toList());
    SparkException failed = assertThrows(SparkException.class, () -> fit(BackendChoice.NCCL));
    String reason =
        ", but the backend is NCCL: set spark.task.resource.gpu.amount=1 and"
            + " spark.executor.resource.gpu.amount";
    String message = failed.getMessage();
    assertTrue(message.contains("Spark has assigned no GPU to the task of rank "), message);
    assertTrue(message.contains(reason), message);
  }
}
