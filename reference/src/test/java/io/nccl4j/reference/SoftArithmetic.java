package io.nccl4j.reference;

import io.nccl4j.DataType;
import java.math.BigInteger;

/**
 * Reductions in doubles and big integers, each rounded once to the type, and to float8 through
 * binary16. Written for the tests from the definitions of the formats.
 */
public final class SoftArithmetic {
  public enum Op {
    SUM,
    PROD,
    MAX,
    MIN
  }

  private final DataType type;

  public SoftArithmetic(DataType type) {
    this.type = type;
  }

  public double combine(Op op, double a, double b) {
    if (op == Op.MAX || op == Op.MIN) {
      // Of a number and a NaN, the number is the result.
      if (Double.isNaN(a) || Double.isNaN(b)) {
        return round(Double.isNaN(a) ? b : a);
      }
      return round(op == Op.MAX ? Math.max(a, b) : Math.min(a, b));
    }
    // Doubles have more than twice the digits of the other types, so double rounding is harmless.
    return round(op == Op.SUM ? a + b : a * b);
  }

  public double multiply(double a, double factor) {
    return round(a * factor);
  }

  public double round(double value) {
    return switch (type) {
      case FLOAT64 -> value;
      case FLOAT32 -> (float) value;
      case FLOAT16 -> round(value, 11, -14, 65504, false);
      case BFLOAT16 -> round(value, 8, -126, 0x1.fep127, false);
      case FLOAT8E4M3 -> round(round(value, 11, -14, 65504, false), 4, -6, 448, true);
      case FLOAT8E5M2 -> round(round(value, 11, -14, 65504, false), 3, -14, 57344, true);
      default -> throw new IllegalArgumentException(type + " is not a floating-point type");
    };
  }

  /** Rounds a factor directly to the type, as the host does. */
  public double roundFactor(double value) {
    return switch (type) {
      case FLOAT8E4M3 -> round(value, 4, -6, 448, true);
      case FLOAT8E5M2 -> round(value, 3, -14, 57344, true);
      default -> round(value);
    };
  }

  /** Rounds to nearest, ties to even, with the given significant bits and least exponent. */
  private static double round(
      double value, int bits, int leastExponent, double largest, boolean saturates) {
    if (Double.isNaN(value) || value == 0) {
      return value;
    }
    int exponent = Math.max(Math.getExponent(value), leastExponent);
    double unit = Math.scalb(1.0, exponent - bits + 1);
    double rounded = Double.isInfinite(value) ? value : Math.rint(value / unit) * unit;
    if (Math.abs(rounded) <= largest) {
      return rounded;
    }
    return Math.copySign(saturates ? largest : Double.POSITIVE_INFINITY, rounded);
  }

  BigInteger combine(Op op, BigInteger a, BigInteger b) {
    return switch (op) {
      case SUM -> wrap(a.add(b));
      case PROD -> wrap(a.multiply(b));
      case MAX -> a.max(b);
      case MIN -> a.min(b);
    };
  }

  BigInteger wrap(BigInteger value) {
    int bits = 8 * type.bytes();
    BigInteger low = value.mod(BigInteger.ONE.shiftLeft(bits));
    boolean unsigned = type.name().startsWith("UINT");
    return unsigned || !low.testBit(bits - 1) ? low : low.subtract(BigInteger.ONE.shiftLeft(bits));
  }
}
