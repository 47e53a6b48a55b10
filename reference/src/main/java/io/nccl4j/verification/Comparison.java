package io.nccl4j.verification;

import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import java.lang.foreign.MemorySegment;

/**
 * Compares a result of NCCL with the expected one, and keeps the first wrong element. The bits of a
 * NaN, the sign of a zero that is a minimum or maximum, and roundings of the smallest numbers in an
 * average depend on the GPU and are not compared.
 */
final class Comparison {
  private final DataType type;
  private final MemorySegment actual;
  private long elements;
  private long first = -1;
  private String expectedText = "";
  private double permitted;

  Comparison(DataType type, MemorySegment actual) {
    this.type = type;
    this.actual = actual;
  }

  /** Compares all elements bit for bit. */
  void compareBits(MemorySegment expected, int operator, int ranks) {
    long at = actual.mismatch(expected);
    if (at < 0) {
      return;
    }
    long count = actual.byteSize() / type.bytes();
    for (long i = at / type.bytes(); i < count; i++) {
      if (bits(actual, i) != bits(expected, i) && !same(expected, i, operator, ranks)) {
        if (first < 0) {
          expectedText = text(expected, i);
        }
        add(i, 0);
      }
    }
  }

  private boolean same(MemorySegment expected, long i, int operator, int ranks) {
    if (!type.floating()) {
      return false;
    }
    double here = type.get(actual, i);
    double there = type.get(expected, i);
    boolean minMax = operator == ReduceOp.MAX.code() || operator == ReduceOp.MIN.code();
    return (Double.isNaN(here) && Double.isNaN(there))
        || (minMax && here == 0 && there == 0)
        || (operator == ReduceOp.AVG.code() && Math.abs(here - there) <= ranks * smallest());
  }

  /**
   * Compares one element within the bound of a sum in any order, whose partial sums are rounded to
   * the type or more precisely: {@code 2 (n + 1) u} times the sum of the magnitudes, for n ranks
   * and the unit roundoff u. If a partial sum could overflow, the element is not compared.
   *
   * @param sum the sum of the elements of all ranks
   * @param magnitudes the sum of their magnitudes
   */
  void compareWithinBound(long i, double sum, double magnitudes, int ranks) {
    double bound = 2 * (ranks + 1) * roundoff() * magnitudes + ranks * smallest();
    double difference = Math.abs(type.get(actual, i) - sum);
    if (magnitudes + bound < largest() && !(difference <= bound)) {
      if (first < 0) {
        expectedText = Double.toString(sum);
      }
      add(i, bound);
    }
  }

  private void add(long element, double bound) {
    if (first < 0) {
      first = element;
      permitted = bound;
    }
    elements++;
  }

  /** Returns the number of wrong elements. */
  long elements() {
    return elements;
  }

  /** Returns the first wrong element. */
  long first() {
    return first;
  }

  /** Returns the expected value of the first wrong element. */
  String expected() {
    return expectedText;
  }

  /** Returns NCCL's value of the first wrong element. */
  String actual() {
    return text(actual, first);
  }

  /** Returns the bound of the first wrong element; 0 if bits were compared. */
  double bound() {
    return permitted;
  }

  private String text(MemorySegment values, long i) {
    String value =
        type.floating()
            ? Double.toString(type.get(values, i))
            : type == DataType.UINT64
                ? Long.toUnsignedString(type.getLong(values, i))
                : Long.toString(type.getLong(values, i));
    return value + " (0x" + Long.toHexString(bits(values, i)) + ")";
  }

  private long bits(MemorySegment values, long i) {
    return switch (type.bytes()) {
      case 1 -> DataType.UINT8.getLong(values, i);
      case 2 ->
          DataType.UINT8.getLong(values, 2 * i) | DataType.UINT8.getLong(values, 2 * i + 1) << 8;
      case 4 -> DataType.UINT32.getLong(values, i);
      default -> DataType.UINT64.getLong(values, i);
    };
  }

  /** Returns the unit roundoff: half the distance from 1 to the next number. */
  private double roundoff() {
    return switch (type) {
      case FLOAT64 -> 0x1p-53;
      case FLOAT32 -> 0x1p-24;
      case FLOAT16 -> 0x1p-11;
      case BFLOAT16 -> 0x1p-8;
      case FLOAT8E4M3 -> 0x1p-4;
      case FLOAT8E5M2 -> 0x1p-3;
      default -> 0;
    };
  }

  /** Returns the smallest positive number. */
  private double smallest() {
    return switch (type) {
      case FLOAT64 -> Double.MIN_VALUE;
      case FLOAT32 -> Float.MIN_VALUE;
      case FLOAT16 -> 0x1p-24;
      case BFLOAT16 -> 0x1p-133;
      case FLOAT8E4M3 -> 0x1p-9;
      case FLOAT8E5M2 -> 0x1p-16;
      default -> 0;
    };
  }

  /** Returns the largest finite number. */
  private double largest() {
    return switch (type) {
      case FLOAT64 -> Double.MAX_VALUE;
      case FLOAT16 -> 65504;
      case FLOAT8E4M3 -> 448;
      case FLOAT8E5M2 -> 57344;
      default -> Float.MAX_VALUE; // Bfloat16 has almost the same.
    };
  }
}
