package io.nccl4j.examples.spark;

import io.nccl4j.Communicator;
import java.io.Serializable;
import java.util.List;
import java.util.stream.DoubleStream;
import org.apache.spark.BarrierTaskContext;

/**
 * The result of one rank, and where it ran.
 *
 * @param rank the rank
 * @param attempt the attempt of the stage, from 0
 * @param process the id of its process
 * @param executor host and port of its executor
 * @param device the backend and the device's index
 * @param rows the number of rows of its partition
 * @param coefficients the fit, the same on all ranks
 * @param errors the mean squared error over the rows of all ranks, before each step
 */
record RankFit(
    int rank,
    int attempt,
    long process,
    String executor,
    String device,
    long rows,
    List<Double> coefficients,
    List<Double> errors)
    implements Serializable {
  private static final long serialVersionUID = 1;

  static RankFit of(
      Communicator communicator,
      BarrierTaskContext context,
      long rows,
      double[] coefficients,
      double[] errors) {
    int rank = communicator.rank();
    return new RankFit(
        rank,
        context.stageAttemptNumber(),
        ProcessHandle.current().pid(),
        context.getTaskInfos()[rank].address(),
        communicator.backend().name() + " " + communicator.device(),
        rows,
        DoubleStream.of(coefficients).boxed().toList(),
        DoubleStream.of(errors).boxed().toList());
  }
}
