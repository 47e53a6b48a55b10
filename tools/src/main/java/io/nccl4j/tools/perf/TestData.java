package io.nccl4j.tools.perf;

import io.nccl4j.DataType;
import io.nccl4j.tools.perf.Collective.Shape;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;
import java.util.function.IntFunction;

/**
 * What every rank puts in and what it must get out, worked out here and not by a backend.
 *
 * <p>Every element differs by place, rank and repetition. Where data is reduced, it is chosen so
 * that the result is the same in whatever order it is combined, each step rounded to the type or
 * not, and the tolerance is 0:
 *
 * <ul>
 *   <li>integers are arbitrary, as their arithmetic wraps around; for products odd, so that they do
 *       not all end at 0; for averages small enough not to wrap;
 *   <li>floating-point sums, averages and pre-multiplied sums are of small whole numbers, times a
 *       power of two that all ranks share, so small that no partial sum needs more bits than the
 *       type has. Where there are more ranks than that leaves room for, some of them have 0;
 *   <li>floating-point products are of powers of two and one factor of 1.5, none of which leaves
 *       the type's range;
 *   <li>minima and maxima are of whole numbers times powers of two.
 * </ul>
 *
 * <p>A floating-point average over n ranks is exact if n is a power of two up to 64. Otherwise each
 * input is multiplied by a rounded 1/n and rounded, then n-1 sums are rounded: at most {@code (n +
 * 2) * u * mean(|x|)} off, where u is half the distance from 1 to the next number. Twice that is
 * allowed, since formats of 8 bits may be rounded twice at each step, and n times the smallest
 * number.
 */
final class TestData {
  private static final int LARGEST_EXACT_AVERAGE = 64;

  /**
   * Some elements of a buffer and what they are.
   *
   * @param offset the first one, in elements
   * @param count how many there are
   * @param pattern what they repeat
   * @param start which element of the pattern is the first
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
   * Makes the data of one collective.
   *
   * @param op the operator; not looked at where nothing is reduced
   * @param root the root; not looked at where there is none
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

  /** Returns the factor that a rank of a pre-multiplied sum has. */
  static double factor(DataType type, int rank) {
    return type.floating() ? 1 << (rank & 1) : 1 + rank % 3;
  }

  /** Returns what a rank sends, relative to where its data to send begins. */
  Range sent(int rank, Shape shape, long repetition) {
    return new Range(0, shape.send(), inputs.get(rank), phase(repetition));
  }

  /** Returns what a buffer holds that must be written, or must stay as it is. */
  Range untouched(long offset, long count) {
    return new Range(offset, count, poison, 0);
  }

  /** Returns what a rank must have received, relative to where its received data begins. */
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

  private List<Range> slices(long slice, IntFunction<Range> span) {
    List<Range> spans = new ArrayList<>();
    for (int from = 0; slice > 0 && from < ranks; from++) {
      spans.add(span.apply(from));
    }
    return spans;
  }

  /** Each repetition starts somewhere else in the patterns, so that stale data is wrong data. */
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
        type.setLong(elements, i, integerInput(rank, i));
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
        long most = largest() / ranks;
        long bounded = Long.remainderUnsigned(random, most + 1);
        yield signed() && (random < 0) ? -bounded : bounded;
      }
    };
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
        double value = turn(rank, i) < 4 ? ((random & 1) == 0 ? 2 : 0.5) : 1;
        yield ((random & 2) == 0 ? value : -value) * (turn(rank, i) == 0 ? 1.5 : 1);
      }
      case MAX, MIN -> {
        int most = (int) Math.min(1L << element.precision(), 1 << 12) - 1;
        yield Math.scalb(
            (double) (Math.floorMod(random >> 8, 2 * most + 1) - most), (int) (random & 3) - 2);
      }
    };
  }

  /** Returns a rank's part of a sum that no order of adding up makes too long for the type. */
  private double summand(int rank, int i, int largestFactor) {
    long room = (1L << Math.min(element.precision(), 24)) / largestFactor;
    int most = Math.clamp(room / ranks, 1, 1 << 10);
    if (turn(rank, i) >= room) {
      return 0;
    }
    int scale = (int) (random(-1, i) & 3) - 2;
    return Math.scalb((double) (Math.floorMod(random(rank, i), 2 * most + 1) - most), scale);
  }

  /** Returns a number from 0 to {@code ranks - 1}, another one for each rank of one element. */
  private int turn(int rank, int i) {
    return (rank + i) % ranks;
  }

  private boolean exactFloats() {
    return op != Operator.AVG || (Integer.bitCount(ranks) == 1 && ranks <= LARGEST_EXACT_AVERAGE);
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
      type.setLong(pattern.elements(), i, op == Operator.AVG ? value / ranks : value);
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

  /**
   * Returns the bits of one place of one rank; each call with the same arguments gives the same.
   */
  private static long random(int rank, long place) {
    long bits = (rank + 2) * 0x9E3779B97F4A7C15L + place * 0xD1B54A32D192ED03L;
    bits = (bits ^ (bits >>> 30)) * 0xBF58476D1CE4E5B9L;
    bits = (bits ^ (bits >>> 27)) * 0x94D049BB133111EBL;
    return bits ^ (bits >>> 31);
  }
}
