package io.nccl4j.tools.perf;

import io.nccl4j.DataType;
import io.nccl4j.tools.perf.Collective.Shape;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;
import java.util.function.IntFunction;

/**
 * The input and the expected output of every rank, computed independently of any backend.
 *
 * <p>Every element depends on its position, rank and repetition. Data to be reduced is chosen so
 * that the result does not depend on the order of the operations, nor on whether each step is
 * rounded to the type; the tolerance is 0:
 *
 * <ul>
 *   <li>Integers are arbitrary, as their arithmetic wraps around. For products they are odd, so
 *       that not all results become 0; for averages they are too small to wrap.
 *   <li>Floating-point sums, averages and pre-multiplied sums are of small integers times a power
 *       of two that all ranks share, such that no partial sum needs more bits than the type has. If
 *       there are too many ranks for that, some have 0.
 *   <li>Floating-point products are of powers of two and one factor of 1.5, within the type's
 *       range.
 *   <li>Minima and maxima are of integers times powers of two.
 * </ul>
 *
 * <p>A floating-point average over n ranks is exact if n is a power of two up to 64. Otherwise each
 * input is multiplied by a rounded 1/n and rounded, then n-1 sums are rounded: the error is at most
 * {@code (n + 2) * u * mean(|x|)}, where u is half the distance from 1 to the next number. The
 * tolerance is twice that, since 8-bit formats may be rounded twice at each step, plus n times the
 * smallest number.
 */
final class TestData {
  private static final int MAX_EXACT_AVERAGE = 64;

  /**
   * A range of a buffer and its contents.
   *
   * @param offset the first element
   * @param count the number of elements
   * @param pattern the repeated contents
   * @param start the index in the pattern of the first element
   */
  record Range(long offset, long count, Pattern pattern, long start) {}

  private final Collective collective;
  private final ElementType element;
  private final DataType type;
  private final Operator op;
  private final int ranks;
  private final int root;
  private final Pattern poison;
  private final List<Pattern> inputs = new ArrayList<>();
  private final Pattern result;

  /**
   * Creates the data of one collective.
   *
   * @param op the operator; ignored if nothing is reduced
   * @param root the root; ignored if there is none
   */
  TestData(Collective collective, ElementType element, Operator op, int ranks, int root) {
    this.collective = collective;
    this.element = element;
    this.type = element.type();
    this.op = op;
    this.ranks = ranks;
    this.root = root;
    this.poison = Pattern.poison(type);
    for (int rank = 0; rank < ranks; rank++) {
      inputs.add(input(rank));
    }
    if (!collective.reduces()) {
      this.result = null;
    } else if (type.floating()) {
      this.result = exactFloats() ? exactFloatResult() : boundedAverage();
    } else {
      this.result = integerResult();
    }
  }

  /** Returns a rank's factor in a pre-multiplied sum. */
  static double factor(DataType type, int rank) {
    return type.floating() ? 1 << (rank & 1) : 1 + rank % 3;
  }

  /** Returns the data that a rank sends, relative to the start of that data. */
  Range sent(int rank, Shape shape, long repetition) {
    return new Range(0, shape.send(), inputs.get(rank), phase(repetition));
  }

  /** Returns the poison of elements that the operation must overwrite, or must leave unchanged. */
  Range untouched(long offset, long count) {
    return new Range(offset, count, poison, 0);
  }

  /** Returns the data that a rank must have received, relative to the start of that data. */
  List<Range> received(int rank, Shape shape, long repetition, boolean inPlace) {
    long phase = phase(repetition);
    long slice = shape.param();
    return switch (collective) {
      case ALL_REDUCE -> List.of(new Range(0, slice, result, phase));
      case REDUCE ->
          List.of(
              rank == root
                  ? new Range(0, slice, result, phase)
                  : inPlace ? new Range(0, slice, inputs.get(rank), phase) : untouched(0, slice));
      case REDUCE_SCATTER -> List.of(new Range(0, slice, result, rank * slice + phase));
      case BROADCAST -> List.of(new Range(0, slice, inputs.get(root), phase));
      case ALL_GATHER ->
          slices(slice, from -> new Range(from * slice, slice, inputs.get(from), phase));
      case ALLTOALL ->
          slices(
              slice,
              from -> new Range(from * slice, slice, inputs.get(from), rank * slice + phase));
      case GATHER ->
          slices(
              slice,
              from ->
                  rank == root || (inPlace && from == rank)
                      ? new Range(from * slice, slice, inputs.get(from), phase)
                      : untouched(from * slice, slice));
      case SCATTER -> List.of(new Range(0, slice, inputs.get(root), rank * slice + phase));
      case SENDRECV -> List.of(new Range(0, slice, inputs.get((rank + ranks - 1) % ranks), phase));
    };
  }

  private List<Range> slices(long slice, IntFunction<Range> range) {
    List<Range> ranges = new ArrayList<>();
    for (int from = 0; slice > 0 && from < ranks; from++) {
      ranges.add(range.apply(from));
    }
    return ranges;
  }

  /** Each repetition starts elsewhere in the patterns, so that stale data is wrong. */
  private static long phase(long repetition) {
    return repetition * 7919 % Pattern.PERIOD;
  }

  private Pattern input(int rank) {
    Pattern pattern = Pattern.exact(type);
    MemorySegment elements = pattern.elements();
    if (!collective.reduces()) {
      for (long at = 0; at < elements.byteSize() - 7; at += 8) {
        elements.set(ValueLayout.JAVA_LONG_UNALIGNED, at, random(rank, at));
      }
      return pattern;
    }
    for (int i = 0; i < Pattern.PERIOD; i++) {
      if (type.floating()) {
        type.set(elements, i, floatInput(rank, i));
      } else {
        type.setLong(elements, i, wrapped(integerInput(rank, i)));
      }
    }
    return pattern;
  }

  private long integerInput(int rank, int i) {
    long random = random(rank, i);
    return switch (op) {
      case SUM, MAX, MIN, MULSUM -> random;
      case PROD -> random | 1;
      case AVG -> {
        long max = largest() / ranks;
        long bounded = Long.remainderUnsigned(random, max + 1);
        yield signed() && (random < 0) ? -bounded : bounded;
      }
    };
  }

  /** Returns the value that the type's arithmetic, which wraps around, has in place of another. */
  private long wrapped(long value) {
    int unused = Long.SIZE - 8 * type.bytes();
    return signed() ? value << unused >> unused : value << unused >>> unused;
  }

  private boolean signed() {
    return switch (element) {
      case INT8, INT32, INT64 -> true;
      default -> false;
    };
  }

  private long largest() {
    return element.precision() == 64
        ? Long.MAX_VALUE
        : (1L << (element.precision() - (signed() ? 1 : 0))) - 1;
  }

  private double floatInput(int rank, int i) {
    long random = random(rank, i);
    return switch (op) {
      case SUM, AVG -> summand(rank, i, 1);
      case MULSUM -> summand(rank, i, 2);
      case PROD -> {
        double value = order(rank, i) < 4 ? ((random & 1) == 0 ? 2 : 0.5) : 1;
        yield ((random & 2) == 0 ? value : -value) * (order(rank, i) == 0 ? 1.5 : 1);
      }
      case MAX, MIN -> {
        int max = (int) Math.min(1L << element.precision(), 1 << 12) - 1;
        yield Math.scalb(
            (double) (Math.floorMod(random >> 8, 2 * max + 1) - max), (int) (random & 3) - 2);
      }
    };
  }

  /** Returns a rank's summand, such that all partial sums are exact in the type. */
  private double summand(int rank, int i, int largestFactor) {
    long maxSum = (1L << Math.min(element.precision(), 24)) / largestFactor;
    int max = Math.clamp(maxSum / ranks, 1, 1 << 10);
    if (order(rank, i) >= maxSum) {
      return 0;
    }
    int scale = (int) (random(-1, i) & 3) - 2;
    return Math.scalb((double) (Math.floorMod(random(rank, i), 2 * max + 1) - max), scale);
  }

  /** Returns a permutation of the ranks that depends on the element. */
  private int order(int rank, int i) {
    return (rank + i) % ranks;
  }

  private boolean exactFloats() {
    return op != Operator.AVG || (Integer.bitCount(ranks) == 1 && ranks <= MAX_EXACT_AVERAGE);
  }

  private Pattern exactFloatResult() {
    Pattern pattern = Pattern.exact(type);
    for (int i = 0; i < Pattern.PERIOD; i++) {
      double value = inputAt(0, i);
      for (int rank = 1; rank < ranks; rank++) {
        double next = inputAt(rank, i);
        value =
            switch (op) {
              case SUM, AVG, MULSUM -> value + next;
              case PROD -> value * next;
              case MAX -> Math.max(value, next);
              case MIN -> Math.min(value, next);
            };
      }
      type.set(pattern.elements(), i, op == Operator.AVG ? value / ranks : value);
    }
    return pattern;
  }

  private double inputAt(int rank, int i) {
    double value = type.get(inputs.get(rank).elements(), i);
    return op == Operator.MULSUM ? value * factor(type, rank) : value;
  }

  private Pattern boundedAverage() {
    double[] low = new double[Pattern.PERIOD];
    double[] high = new double[Pattern.PERIOD];
    for (int i = 0; i < Pattern.PERIOD; i++) {
      double sum = 0;
      double magnitudes = 0;
      for (int rank = 0; rank < ranks; rank++) {
        sum += inputAt(rank, i);
        magnitudes += Math.abs(inputAt(rank, i));
      }
      double unit = Math.scalb(1.0, -element.precision());
      double tolerance = 2 * (ranks + 2) * unit * magnitudes / ranks + ranks * smallest();
      low[i] = sum / ranks - tolerance;
      high[i] = sum / ranks + tolerance;
    }
    return Pattern.within(type, low, high);
  }

  private double smallest() {
    return switch (element) {
      case F8E4M3 -> 0x1p-9;
      case F8E5M2 -> 0x1p-16;
      case HALF -> 0x1p-24;
      default -> 0;
    };
  }

  private Pattern integerResult() {
    Pattern pattern = Pattern.exact(type);
    for (int i = 0; i < Pattern.PERIOD; i++) {
      long value = integerAt(0, i);
      for (int rank = 1; rank < ranks; rank++) {
        long next = integerAt(rank, i);
        value =
            switch (op) {
              case SUM, AVG, MULSUM -> value + next;
              case PROD -> value * next;
              case MAX -> less(value, next) ? next : value;
              case MIN -> less(value, next) ? value : next;
            };
      }
      type.setLong(pattern.elements(), i, wrapped(op == Operator.AVG ? value / ranks : value));
    }
    return pattern;
  }

  private long integerAt(int rank, int i) {
    long value = type.getLong(inputs.get(rank).elements(), i);
    return op == Operator.MULSUM ? value * (long) factor(type, rank) : value;
  }

  private boolean less(long a, long b) {
    return signed() ? a < b : Long.compareUnsigned(a, b) < 0;
  }

  /** Returns pseudo-random bits that depend only on the arguments. */
  private static long random(int rank, long index) {
    long bits = (rank + 2) * 0x9E3779B97F4A7C15L + index * 0xD1B54A32D192ED03L;
    bits = (bits ^ (bits >>> 30)) * 0xBF58476D1CE4E5B9L;
    bits = (bits ^ (bits >>> 27)) * 0x94D049BB133111EBL;
    return bits ^ (bits >>> 31);
  }
}
