package io.nccl4j.examples.spark;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.BarrierTaskContext;

/**
 * Fits coefficients by gradient descent on half the mean squared error. Each rank keeps the rows of
 * its partition and sums their gradients; an all-reduce sums those of all ranks. After each step
 * all ranks have the same coefficients, bit for bit.
 *
 * @param features the number of features of a row, which precede its target
 * @param steps the number of steps
 * @param killAt the step, from 0, before which the process of the last rank ends in the first
 *     attempt of the stage; or {@link #NEVER}
 */
record Fit(int features, int steps, int killAt) implements RankProgram<double[], RankFit> {
  /** No step. */
  static final int NEVER = -1;

  /**
   * The learning rate. The second derivative has eigenvalues around 1 for standard normal features,
   * and below 4 if there are at least as many rows as features, so no error grows.
   */
  static final double RATE = 0.5;

  private static final long serialVersionUID = 1;

  @Override
  public RankFit run(
      Communicator communicator, Iterator<double[]> data, BarrierTaskContext context) {
    List<double[]> rows = new ArrayList<>();
    data.forEachRemaining(rows::add);
    double[] coefficients = new double[features];
    double[] errors = new double[steps];
    double[] sums = new double[features + 2];
    try (Stream stream = communicator.newStream();
        Buffer buffer = communicator.newBuffer(DataType.FLOAT64, sums.length)) {
      for (int step = 0; step < steps; step++) {
        exitIfRequested(step, communicator, context);
        sum(rows, coefficients, sums);
        buffer.copyFromAsync(MemorySegment.ofArray(sums), stream);
        communicator.allReduce(buffer, buffer, ReduceOp.SUM, stream);
        buffer.copyTo(MemorySegment.ofArray(sums), stream);
        errors[step] = descend(coefficients, sums);
      }
    }
    return RankFit.of(communicator, context, rows.size(), coefficients, errors);
  }

  /** Computes the sum of the rows' gradients, the sum of their squared errors, and their number. */
  private void sum(List<double[]> rows, double[] coefficients, double[] sums) {
    Arrays.fill(sums, 0);
    for (double[] row : rows) {
      double error = -row[features];
      for (int i = 0; i < features; i++) {
        error += coefficients[i] * row[i];
      }
      for (int i = 0; i < features; i++) {
        sums[i] += error * row[i];
      }
      sums[features] += error * error;
    }
    sums[features + 1] = rows.size();
  }

  /** Takes one step, and returns the mean squared error before it. */
  private double descend(double[] coefficients, double[] sums) {
    double rows = sums[features + 1];
    for (int i = 0; i < features; i++) {
      coefficients[i] -= RATE * sums[i] / rows;
    }
    return sums[features] / rows;
  }

  private void exitIfRequested(int step, Communicator communicator, BarrierTaskContext context) {
    boolean last = communicator.rank() == communicator.size() - 1;
    if (step == killAt && last && context.stageAttemptNumber() == 0) {
      Runtime.getRuntime().halt(1);
    }
  }
}
