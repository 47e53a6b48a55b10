package io.nccl4j.examples.spark;

import io.nccl4j.Communicator;
import java.io.Serializable;
import java.util.Iterator;
import org.apache.spark.BarrierTaskContext;

/**
 * The program of each rank of a barrier stage. The program and its result are serialized.
 *
 * @param <T> the type of the stage's data
 * @param <R> the type of a rank's result
 */
@FunctionalInterface
public interface RankProgram<T, R> extends Serializable {
  /**
   * Runs one rank, in its own task. If any rank fails, it is called again from the start, possibly
   * in another process, with a new communicator: see {@link BarrierTaskContext#stageAttemptNumber}.
   *
   * @param communicator this rank's communicator; the caller closes it, or aborts it if this method
   *     throws or Spark kills the task
   * @param data the partition with this rank's index
   * @param context Spark's context of the task
   * @return this rank's result
   * @throws Exception if the rank failed, which fails this attempt of the stage
   */
  R run(Communicator communicator, Iterator<T> data, BarrierTaskContext context) throws Exception;
}
