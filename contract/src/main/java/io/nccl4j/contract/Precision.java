package io.nccl4j.contract;

import io.nccl4j.DataType;

/**
 * The rounding error of a floating-point type.
 *
 * @param bits the number of significant bits, including the implicit one
 * @param smallest the smallest positive value, which is subnormal
 */
record Precision(int bits, double smallest) {
  static Precision of(DataType type) {
    return switch (type) {
      case FLOAT64 -> new Precision(53, Double.MIN_VALUE);
      case FLOAT32 -> new Precision(24, Float.MIN_VALUE);
      case FLOAT16 -> new Precision(11, 0x1p-24);
      case BFLOAT16 -> new Precision(8, 0x1p-133);
      case FLOAT8E4M3 -> new Precision(4, 0x1p-9);
      case FLOAT8E5M2 -> new Precision(3, 0x1p-16);
      default -> throw new IllegalArgumentException(type + " does not round");
    };
  }

  /** Returns the largest integer up to which the type represents every integer. */
  long exactIntegers() {
    return 1L << bits;
  }

  /** Returns the largest relative error of one rounding to nearest: half a unit in last place. */
  double unitRoundoff() {
    return Math.scalb(1.0, -bits);
  }

  /**
   * Returns the forward error bound of a result after some number of roundings in any order.
   *
   * <p>Each rounding multiplies by (1 + d) with |d| <= u, or adds at most half the smallest value
   * if it underflows. A term of a sum, or the product, undergoes at most {@code roundings} of them,
   * so its error is at most ((1+u)^roundings - 1) times its magnitude. The underflow of one step is
   * amplified by at most (1+u)^roundings. For float8, u includes one additional rounding to float16
   * per rounding, because GPUs compute float8 that way. Unlike the usual gamma, this bound does not
   * require {@code roundings * u < 1}.
   *
   * @param magnitude the sum of the magnitudes of the terms, or the magnitude of the product
   */
  double errorBound(int roundings, double magnitude) {
    double u = bits <= 4 ? (1 + unitRoundoff()) * (1 + 0x1p-11) - 1 : unitRoundoff();
    double growth = Math.exp(roundings * Math.log1p(u));
    return (growth - 1) * magnitude * (1 + 0x1p-40) + roundings * growth * smallest;
  }
}
