package io.nccl4j.examples.spark;

import io.nccl4j.Communicator;
import java.io.Serializable;
import java.util.Iterator;
import org.apache.spark.BarrierTaskContext;

/**
 * What each rank of a barrier stage does. It is serialized, and so is what it returns.
 *
 * @param <T> the type of the stage's data
 * @param <R> the type of a rank's result
 */
@FunctionalInterface
public interface RankProgram<T, R> extends Serializable {
  /**
   * Runs one rank, in a task of its own. It may be called anew, in another process, with a new
   * communicator and from the start, if any rank fails: see {@link
   * BarrierTaskContext#stageAttemptNumber}.
   *
   * @param communicator this rank's end; the caller closes it, or aborts it if this method throws
   *     or Spark kills the task
   * @param data the partition of this rank's number
   * @param context what Spark knows of the task
   * @return this rank's result
   * @throws Exception if the rank failed, and with it this attempt of the stage
   */
  R run(Communicator communicator, Iterator<T> data, BarrierTaskContext context) throws Exception;
}
