package io.nccl4j.examples.spark;

import java.io.Serializable;
import java.util.Iterator;
import java.util.List;
import java.util.SplittableRandom;
import java.util.stream.DoubleStream;
import java.util.stream.StreamSupport;
import org.apache.spark.SparkContext;
import org.apache.spark.api.java.JavaRDD;

/**
 * A generated data set: features are standard normal, a target is the sum of their products with
 * coefficients between -2 and 2, and noise. Row i is the same in whatever partition it lies.
 *
 * @param rows how many rows
 * @param features how many features a row has
 * @param seed what all numbers are drawn from
 */
record LeastSquares(long rows, int features, long seed) implements Serializable {
  /** The standard deviation of the noise. */
  static final double NOISE = 0.1;

  private static final long serialVersionUID = 1;

  /** {@return what a fit is to find} */
  List<Double> coefficients() {
    DoubleStream drawn = new SplittableRandom(seed).doubles(features, -2, 2);
    return drawn.boxed().toList();
  }

  /**
   * {@return the rows, each its features and then its target, generated where they are used}
   *
   * @param context the context of the cluster
   * @param partitions into how many parts they are divided
   */
  JavaRDD<double[]> rows(SparkContext context, int partitions) {
    return context.range(0, rows, 1, partitions).toJavaRDD().mapPartitions(this::generate);
  }

  private Iterator<double[]> generate(Iterator<Object> indices) {
    double[] coefficients = coefficients().stream().mapToDouble(Double::doubleValue).toArray();
    Iterable<Object> once = () -> indices;
    return StreamSupport.stream(once.spliterator(), false)
        .map(index -> row((Long) index, coefficients))
        .iterator();
  }

  private double[] row(long index, double[] coefficients) {
    // Neighbouring seeds give unrelated numbers only from the second generator on.
    SplittableRandom random = new SplittableRandom(new SplittableRandom(~seed + index).nextLong());
    double[] row = new double[features + 1];
    double target = NOISE * random.nextGaussian();
    for (int i = 0; i < features; i++) {
      row[i] = random.nextGaussian();
      target += coefficients[i] * row[i];
    }
    row[features] = target;
    return row;
  }
}
