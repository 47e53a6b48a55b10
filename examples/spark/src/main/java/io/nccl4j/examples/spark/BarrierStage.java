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
 * Runs one rank in each task of a barrier stage of Spark, and so as many ranks as the data has
 * partitions, all at once.
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
 * <p>If a rank fails, or its executor is lost, the communicators of all others are aborted and
 * Spark runs the whole stage again, at most {@code spark.stage.maxConsecutiveAttempts} times. Each
 * attempt has a unique id of its own.
 */
public final class BarrierStage {
  /** How often it is looked whether the context is still there. */
  private static final FiniteDuration LOOK = FiniteDuration.apply(1, TimeUnit.SECONDS);

  private BarrierStage() {}

  /**
   * Runs a program on as many ranks as the data has partitions, and waits for all of them. Spark
   * itself limits how long the ranks wait for each other before they share an id: {@code
   * spark.barrier.sync.timeout}.
   *
   * @param <T> the type of the data
   * @param <R> the type of a rank's result
   * @param data one partition for each rank; nothing that comes before them in their stage may have
   *     another number of partitions
   * @param backend what carries out the collectives
   * @param timeout of the communicators: the longest that ranks wait for each other; positive
   * @param program what each rank does
   * @return the results, rank 0's first
   * @throws IllegalStateException if there are more ranks than the cluster has slots for tasks, if
   *     the context is stopped before the ranks have started, or if this thread is interrupted,
   *     which cancels the job. Spark's own exceptions come out as they are: a {@link
   *     org.apache.spark.SparkException}, which is checked and which Scala does not declare, if the
   *     stage failed too often
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
      return result(behindAStage(results));
    } catch (Exception e) {
      // Scala's methods declare nothing, so Java does not let it be caught by its name.
      if (e instanceof BarrierJobSlotsNumberCheckFailed slots) {
        throw new IllegalStateException(
            "ranks run at once, and there are %d of them; the cluster has slots for %d"
                .formatted(slots.requiredConcurrentTasks(), slots.maxConcurrentTasks()),
            e);
      }
      throw e;
    }
  }

  /** Collects the results; Spark never ends a job that it has not begun when its context stops. */
  private static <R> List<R> result(JavaRDD<R> results) {
    FutureAction<Seq<R>> job =
        RDD.rddToAsyncRDDActions(results.rdd(), results.classTag()).collectAsync();
    // Of a job that has begun, Spark says itself why it ends, a moment after the context.
    for (boolean stopped = false; !job.isCompleted(); stopped = results.context().isStopped()) {
      try {
        Await.ready(job, LOOK);
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
   * Moves the results by rank into one partition, in a stage of its own: Spark runs a barrier stage
   * again only if it is not the last of its job, whose results may already have been used.
   */
  private static <R> JavaRDD<R> behindAStage(JavaRDD<Tuple2<Integer, R>> results) {
    return JavaPairRDD.fromJavaRDD(results)
        .repartitionAndSortWithinPartitions(new HashPartitioner(1))
        .values();
  }
}
