package io.nccl4j.examples.spark;

import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.spark.FutureAction;
import org.apache.spark.HashPartitioner;
import org.apache.spark.api.java.JavaPairRDD;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.rdd.RDD;
import org.apache.spark.scheduler.BarrierJobSlotsNumberCheckFailed;
import scala.Tuple2;
import scala.collection.immutable.Seq;
import scala.concurrent.Await;
import scala.concurrent.duration.FiniteDuration;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag;

/**
 * Runs one rank in each task of a Spark barrier stage: one rank per partition of the data, all at
 * once.
 *
 * {@snippet :
 * List<double[]> sums =
 *     BarrierStage.run(
 *         data,
 *         BackendChoice.AUTO,
 *         Duration.ofMinutes(1),
 *         (communicator, rows, context) -> sum(communicator, rows));
 * }
 *
 * <p>If a rank fails or its executor is lost, the communicators of all other ranks are aborted, and
 * Spark reruns the whole stage, at most {@code spark.stage.maxConsecutiveAttempts} times. Each
 * attempt has a new unique id.
 */
public final class BarrierStage {
  /** How often to check whether the context has been stopped. */
  private static final FiniteDuration POLL_INTERVAL = FiniteDuration.apply(1, TimeUnit.SECONDS);

  private BarrierStage() {}

  /**
   * Runs a program on one rank per partition of the data, and waits for all of them. Until the
   * ranks share an id, Spark's {@code spark.barrier.sync.timeout} limits how long they wait for
   * each other.
   *
   * @param <T> the type of the data
   * @param <R> the type of a rank's result
   * @param data one partition for each rank; earlier RDDs of the same stage must have the same
   *     number of partitions
   * @param backend the backend of the collectives
   * @param timeout the communicators' timeout: how long ranks wait for each other; positive
   * @param program the program of each rank
   * @return the results in rank order
   * @throws IllegalStateException if there are more ranks than the cluster has task slots, if the
   *     context is stopped before the ranks have started, or if this thread is interrupted, which
   *     cancels the job. Spark's own exceptions are propagated, including a {@link
   *     org.apache.spark.SparkException} if the stage failed too often; it is checked, but Scala
   *     does not declare it
   */
  public static <T, R> List<R> run(
      JavaRDD<T> data, BackendChoice backend, Duration timeout, RankProgram<T, R> program) {
    Objects.requireNonNull(data, "data");
    if (timeout.isNegative() || timeout.isZero()) {
      throw new IllegalArgumentException("timeout is " + timeout + "; it must be positive");
    }
    RankTask<T, R> task =
        new RankTask<>(
            Objects.requireNonNull(backend, "backend"),
            timeout,
            Objects.requireNonNull(program, "program"));
    ClassTag<Tuple2<Integer, R>> type = ClassTag.apply(Tuple2.class);
    JavaRDD<Tuple2<Integer, R>> results =
        data.rdd().barrier().mapPartitions(task, false, type).toJavaRDD();
    try {
      return collect(inFollowingStage(results));
    } catch (Exception e) {
      // Scala methods declare no checked exceptions, so Java cannot catch this one by type.
      if (e instanceof BarrierJobSlotsNumberCheckFailed slots) {
        throw new IllegalStateException(
            "there are %d ranks, which must run at once; the cluster has slots for %d"
                .formatted(slots.requiredConcurrentTasks(), slots.maxConcurrentTasks()),
            e);
      }
      throw e;
    }
  }

  /** Collects the results; if the context stops before the job starts, Spark never ends the job. */
  private static <R> List<R> collect(JavaRDD<R> results) {
    FutureAction<Seq<R>> job =
        RDD.rddToAsyncRDDActions(results.rdd(), results.classTag()).collectAsync();
    // For a job that has started, Spark itself reports the reason, shortly after the context stops.
    for (boolean stopped = false; !job.isCompleted(); stopped = results.context().isStopped()) {
      try {
        Await.ready(job, POLL_INTERVAL);
      } catch (TimeoutException e) {
        if (stopped) {
          throw new IllegalStateException("SparkContext was shut down before any rank started", e);
        }
      } catch (InterruptedException e) {
        job.cancel();
        Thread.currentThread().interrupt();
        throw new IllegalStateException("interrupted while waiting for the ranks", e);
      }
    }
    return CollectionConverters.asJava(job.value().get().get());
  }

  /**
   * Moves the results, in rank order, into one partition of a following stage: Spark does not rerun
   * the last stage of a job, since its results may already have been used.
   */
  private static <R> JavaRDD<R> inFollowingStage(JavaRDD<Tuple2<Integer, R>> results) {
    return JavaPairRDD.fromJavaRDD(results)
        .repartitionAndSortWithinPartitions(new HashPartitioner(1))
        .values();
  }
}
