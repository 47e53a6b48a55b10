package io.nccl4j.contract;

import static java.math.BigInteger.ONE;

import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.fixtures.Seed;
import java.lang.foreign.MemorySegment;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.MathContext;
import java.util.List;
import java.util.function.Supplier;

/**
 * The correct result, computed by an oracle that shares no code with a backend: a sequential fold
 * over the ranks in a wider type. Integers are folded in {@link BigInteger}, then wrapped.
 * Floating-point values are folded exactly: in {@code double} if the data was chosen for that, else
 * in {@link BigDecimal}.
 */
interface Expected {
  MathContext WIDE = new MathContext(60);

  /** Returns a description of the first difference from this result, or null if there is none. */
  String differenceOf(MemorySegment actual);

  /** Throws {@link AssertionError} if the actual data differs from this result. */
  default void check(MemorySegment actual, Supplier<String> what) {
    String difference = differenceOf(actual);
    if (difference != null) {
      throw new AssertionError(what.get() + ": " + difference + Seed.hint());
    }
  }

  /** Returns the result of an operation that moves bytes. */
  static Expected bytes(MemorySegment expected) {
    return actual -> {
      if (actual.byteSize() != expected.byteSize()) {
        return "has " + actual.byteSize() + " bytes, expected " + expected.byteSize();
      }
      long at = actual.mismatch(expected);
      return at < 0 ? null : "byte " + at + " of " + expected.byteSize() + " differs";
    };
  }

  /** Returns the result of a reduction all of whose partial results are representable. */
  static Expected exactly(
      DataType type, ReduceOp op, List<MemorySegment> inputs, long from, long count) {
    return type.floating()
        ? exactFloats(type, op, inputs, from, count)
        : integers(type, op, inputs, from, count);
  }

  /** Returns the result of a reduction of any data, within the error bound of rounding. */
  static Expected within(
      DataType type, ReduceOp op, List<MemorySegment> inputs, long from, long count) {
    if (!type.floating()) {
      return integers(type, op, inputs, from, count);
    }
    if (op == ReduceOp.MIN || op == ReduceOp.MAX) {
      return exactFloats(type, op, inputs, from, count);
    }
    return rounded(type, op, inputs, from, count);
  }

  private static Expected integers(
      DataType type, ReduceOp op, List<MemorySegment> inputs, long from, long count) {
    long[] expected = new long[Math.toIntExact(count)];
    for (int i = 0; i < count; i++) {
      BigInteger total = integer(type, inputs.get(0), from + i);
      for (MemorySegment input : inputs.subList(1, inputs.size())) {
        total = combine(op, total, integer(type, input, from + i));
      }
      if (op == ReduceOp.AVG) {
        total = wrap(type, total).divide(BigInteger.valueOf(inputs.size()));
      }
      expected[i] = wrap(type, total).longValue();
    }
    return actual -> {
      for (int i = 0; i < count; i++) {
        long value = type.getLong(actual, i);
        if (value != expected[i]) {
          return "element " + i + " of " + count + " is " + value + ", expected " + expected[i];
        }
      }
      return null;
    };
  }

  private static BigInteger combine(ReduceOp op, BigInteger a, BigInteger b) {
    if (op == ReduceOp.PROD) {
      return a.multiply(b);
    }
    if (op == ReduceOp.MAX) {
      return a.max(b);
    }
    return op == ReduceOp.MIN ? a.min(b) : a.add(b);
  }

  private static BigInteger integer(DataType type, MemorySegment input, long index) {
    return wrap(type, BigInteger.valueOf(type.getLong(input, index)));
  }

  /** Returns the value of the type with the same low bits. */
  private static BigInteger wrap(DataType type, BigInteger value) {
    BigInteger modulus = ONE.shiftLeft(8 * type.bytes());
    BigInteger low = value.mod(modulus);
    boolean signed = type == DataType.INT8 || type == DataType.INT32 || type == DataType.INT64;
    return signed && low.testBit(8 * type.bytes() - 1) ? low.subtract(modulus) : low;
  }

  private static Expected exactFloats(
      DataType type, ReduceOp op, List<MemorySegment> inputs, long from, long count) {
    double[] expected = new double[Math.toIntExact(count)];
    for (int i = 0; i < count; i++) {
      double total = type.get(inputs.get(0), from + i);
      for (MemorySegment input : inputs.subList(1, inputs.size())) {
        total = combine(op, total, type.get(input, from + i));
      }
      expected[i] = op == ReduceOp.AVG ? total / inputs.size() : total;
    }
    return actual -> {
      for (int i = 0; i < count; i++) {
        double value = type.get(actual, i);
        if (value != expected[i] && !(Double.isNaN(value) && Double.isNaN(expected[i]))) {
          return "element " + i + " of " + count + " is " + value + ", expected " + expected[i];
        }
      }
      return null;
    };
  }

  private static double combine(ReduceOp op, double a, double b) {
    if (op == ReduceOp.PROD) {
      return a * b;
    }
    if (op != ReduceOp.MAX && op != ReduceOp.MIN) {
      return a + b;
    }
    if (Double.isNaN(a) || Double.isNaN(b)) {
      return Double.isNaN(a) ? b : a;
    }
    return op == ReduceOp.MAX ? Math.max(a, b) : Math.min(a, b);
  }

  /**
   * Returns the result of a sum, product or average, with its error bound. A sum or product of n
   * terms is rounded at most n-1 times; an average once more for 1/n and once more for the
   * multiplication with it.
   */
  private static Expected rounded(
      DataType type, ReduceOp op, List<MemorySegment> inputs, long from, long count) {
    int n = inputs.size();
    boolean average = op == ReduceOp.AVG;
    int roundings = average ? n + 1 : n - 1;
    double[] values = new double[Math.toIntExact(count)];
    double[] bounds = new double[values.length];
    for (int i = 0; i < count; i++) {
      BigDecimal total = op == ReduceOp.PROD ? BigDecimal.ONE : BigDecimal.ZERO;
      double magnitude = 0;
      for (MemorySegment input : inputs) {
        BigDecimal term = new BigDecimal(type.get(input, from + i));
        total = op == ReduceOp.PROD ? total.multiply(term, WIDE) : total.add(term, WIDE);
        magnitude += Math.abs(term.doubleValue());
      }
      total = average ? total.divide(BigDecimal.valueOf(n), WIDE) : total;
      values[i] = total.doubleValue();
      magnitude = op == ReduceOp.PROD ? Math.abs(values[i]) : average ? magnitude / n : magnitude;
      // The oracle rounds to double, which matters if the type is FLOAT64.
      bounds[i] = Precision.of(type).errorBound(roundings, magnitude) + Math.ulp(values[i]) / 2;
    }
    return near(type, values, bounds);
  }

  /** Returns a result that requires each element to be within a bound of a value. */
  static Expected near(DataType type, double[] values, double[] bounds) {
    return actual -> {
      for (int i = 0; i < values.length; i++) {
        double value = type.get(actual, i);
        if (!(Math.abs(value - values[i]) <= bounds[i])) {
          return "element %d of %d is %s, expected %s +- %s"
              .formatted(i, values.length, value, values[i], bounds[i]);
        }
      }
      return null;
    };
  }
}
