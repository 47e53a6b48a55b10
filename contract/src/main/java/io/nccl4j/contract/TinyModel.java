package io.nccl4j.contract;

import io.nccl4j.DataType;
import io.nccl4j.fixtures.Seed;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.stream.IntStream;

/**
 * A perceptron with one hidden layer, in plain Java doubles, for tests to train. Each parameter has
 * a type, to which its values are rounded.
 *
 * <p>The last parameter is a gate that only the first few samples of the batch use, so that most
 * ranks do not use it.
 */
final class TinyModel {
  /** The number of samples in a batch, divisible among 1, 2, 3 or 4 ranks and then into thirds. */
  static final int BATCH = 36;

  static final double RATE = 0.1;

  private static final int GATED = 3;
  private static final int INPUTS = 3;
  private static final int HIDDEN = 5;
  private static final int[] COUNTS = {HIDDEN * INPUTS, HIDDEN, HIDDEN, 1, INPUTS};
  private static final List<String> NAMES = List.of("w1", "b1", "w2", "b2", "gate");

  /** One sample. */
  record Sample(List<Double> x, double y, boolean gated) {}

  private final List<DataType> types;
  private final List<double[]> values;

  private TinyModel(List<DataType> types, List<double[]> values) {
    this.types = types;
    this.values = values;
  }

  /** Returns a model with random parameters. */
  static TinyModel random(String name, List<DataType> types) {
    SplittableRandom random = Seed.random("model " + name);
    List<double[]> values = new ArrayList<>();
    for (int i = 0; i < COUNTS.length; i++) {
      DataType type = types.get(i);
      values.add(random.doubles(COUNTS[i], -1, 1).map(value -> rounded(type, value)).toArray());
    }
    return new TinyModel(types, values);
  }

  /** Returns a batch that a model can learn. */
  static List<Sample> batch(String name) {
    SplittableRandom random = Seed.random("batch " + name);
    return IntStream.range(0, BATCH)
        .mapToObj(
            i -> {
              List<Double> x = random.doubles(INPUTS, -1, 1).boxed().toList();
              return new Sample(x, Math.sin(x.get(0)) + x.get(1) * x.get(2), i < GATED);
            })
        .toList();
  }

  /** Returns the i-th of {@code parts} equal parts of the samples. */
  static List<Sample> part(List<Sample> samples, int i, int parts) {
    int each = samples.size() / parts;
    return samples.subList(i * each, (i + 1) * each);
  }

  static int parameters() {
    return COUNTS.length;
  }

  static int count(int parameter) {
    return COUNTS[parameter];
  }

  static String name(int parameter) {
    return NAMES.get(parameter);
  }

  /** Returns whether any of the samples uses a parameter. */
  static boolean uses(List<Sample> samples, int parameter) {
    return parameter < COUNTS.length - 1 || samples.stream().anyMatch(Sample::gated);
  }

  DataType type(int parameter) {
    return types.get(parameter);
  }

  double[] values(int parameter) {
    return values.get(parameter);
  }

  /** Returns the mean of the squared errors. */
  double loss(List<Sample> samples) {
    return samples.stream().mapToDouble(s -> Math.pow(output(s) - s.y(), 2)).average().orElse(0);
  }

  private double output(Sample sample) {
    double out = values.get(3)[0];
    for (int h = 0; h < HIDDEN; h++) {
      out += values.get(2)[h] * hidden(sample, h);
    }
    for (int i = 0; sample.gated() && i < INPUTS; i++) {
      out += values.get(4)[i] * sample.x().get(i);
    }
    return out;
  }

  private double hidden(Sample sample, int h) {
    double sum = values.get(1)[h];
    for (int i = 0; i < INPUTS; i++) {
      sum += values.get(0)[h * INPUTS + i] * sample.x().get(i);
    }
    return Math.tanh(sum);
  }

  /** Returns the gradient of the loss for each parameter. */
  List<double[]> gradients(List<Sample> samples) {
    List<double[]> sums = IntStream.of(COUNTS).mapToObj(double[]::new).toList();
    for (Sample sample : samples) {
      addGradients(sample, 2 * (output(sample) - sample.y()) / samples.size(), sums);
    }
    return sums;
  }

  private void addGradients(Sample sample, double ofOutput, List<double[]> sums) {
    sums.get(3)[0] += ofOutput;
    for (int h = 0; h < HIDDEN; h++) {
      double active = hidden(sample, h);
      double ofSum = ofOutput * values.get(2)[h] * (1 - active * active);
      sums.get(2)[h] += ofOutput * active;
      sums.get(1)[h] += ofSum;
      for (int i = 0; i < INPUTS; i++) {
        sums.get(0)[h * INPUTS + i] += ofSum * sample.x().get(i);
      }
    }
    for (int i = 0; sample.gated() && i < INPUTS; i++) {
      sums.get(4)[i] += ofOutput * sample.x().get(i);
    }
  }

  /**
   * Trains on all samples at once, with rounded gradients, and returns the loss after each step.
   */
  double[] train(List<Sample> samples, int steps) {
    double[] losses = new double[steps];
    for (int step = 0; step < steps; step++) {
      List<double[]> gradients = gradients(samples);
      for (int p = 0; p < COUNTS.length; p++) {
        for (int i = 0; i < COUNTS[p]; i++) {
          values.get(p)[i] = stepped(types.get(p), values.get(p)[i], gradients.get(p)[i]);
        }
      }
      losses[step] = loss(samples);
    }
    return losses;
  }

  /** Returns a value after one step of gradient descent. */
  static double stepped(DataType type, double value, double gradient) {
    return rounded(type, value - RATE * rounded(type, gradient));
  }

  private static double rounded(DataType type, double value) {
    MemorySegment one = MemorySegment.ofArray(new byte[type.bytes()]);
    type.set(one, 0, value);
    return type.get(one, 0);
  }
}
