package io.nccl4j.internal.util;

/**
 * Conversions between {@code float} and the floating-point formats that NCCL has besides it. The
 * results are bit-identical to the saturating conversions of GPUs: round to nearest, ties to even;
 * NaN stays NaN.
 *
 * <p>Float16 and bfloat16 overflow to infinity. Both float8 formats saturate: values that are too
 * large, including infinity, become the largest finite value of the same sign ({@code
 * __NV_SATFINITE}).
 */
public final class LowPrecision {
  private static final int E4M3_MAX = 0x7E;
  private static final int E4M3_NAN = 0x7F;
  private static final int E5M2_MAX = 0x7B;
  private static final int E5M2_NAN = 0x7F;
  private static final float[] E4M3_VALUES = values(4, 3);
  private static final float[] E5M2_VALUES = values(5, 2);

  private LowPrecision() {}

  /**
   * {@return the value of an IEEE binary16 pattern}
   *
   * @param bits an IEEE binary16 pattern
   */
  public static float fromFloat16(short bits) {
    return Float.float16ToFloat(bits);
  }

  /**
   * {@return the IEEE binary16 pattern nearest to a value}
   *
   * @param value the value to round
   */
  public static short toFloat16(float value) {
    return Float.floatToFloat16(value);
  }

  /**
   * {@return the value of a bfloat16 pattern}
   *
   * @param bits a bfloat16 pattern
   */
  public static float fromBfloat16(short bits) {
    return Float.intBitsToFloat(bits << 16);
  }

  /**
   * {@return the bfloat16 pattern nearest to a value}
   *
   * @param value the value to round
   */
  public static short toBfloat16(float value) {
    int bits = Float.floatToRawIntBits(value);
    if ((bits & 0x7FFFFFFF) > 0x7F800000) {
      return (short) 0x7FFF;
    }
    return (short) ((bits + 0x7FFF + ((bits >>> 16) & 1)) >>> 16);
  }

  /**
   * {@return the value of a float8 e4m3 pattern (the variant without infinities: largest 448, NaN
   * at 0x7F and 0xFF)}
   *
   * @param bits a float8 e4m3 pattern
   */
  public static float fromFloat8e4m3(byte bits) {
    return E4M3_VALUES[bits & 0xFF];
  }

  /**
   * {@return the float8 e4m3 pattern nearest to a value, saturating at 448}
   *
   * @param value the value to round
   */
  public static byte toFloat8e4m3(float value) {
    return narrow(value, 4, 3, E4M3_MAX, E4M3_NAN);
  }

  /**
   * {@return the value of a float8 e5m2 pattern (largest finite 57344)}
   *
   * @param bits a float8 e5m2 pattern
   */
  public static float fromFloat8e5m2(byte bits) {
    return E5M2_VALUES[bits & 0xFF];
  }

  /**
   * {@return the float8 e5m2 pattern nearest to a value, saturating at 57344}
   *
   * @param value the value to round
   */
  public static byte toFloat8e5m2(float value) {
    return narrow(value, 5, 2, E5M2_MAX, E5M2_NAN);
  }

  private static byte narrow(float value, int exponentBits, int mantissaBits, int max, int nan) {
    int bits = Float.floatToRawIntBits(value);
    int sign = (bits >>> 24) & 0x80;
    int magnitude = bits & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) {
      return (byte) (sign | nan);
    }
    int bias = (1 << (exponentBits - 1)) - 1;
    int exponent = (magnitude >>> 23) - 127 + bias;
    // Subnormal numbers keep the step of exponent 1, so more bits are dropped.
    int shift = 23 - mantissaBits + (exponent < 1 ? 1 - exponent : 0);
    if (shift > 24) {
      return (byte) sign;
    }
    int mantissa = (magnitude & 0x7FFFFF) | (magnitude >>> 23 == 0 ? 0 : 0x800000);
    int rounded = (mantissa + (1 << (shift - 1)) - 1 + ((mantissa >>> shift) & 1)) >>> shift;
    // The implicit bit of a normal number carries into the exponent field, as does a mantissa
    // that rounds up to two.
    int pattern = exponent < 1 ? rounded : ((exponent - 1) << mantissaBits) + rounded;
    return (byte) (sign | Math.min(pattern, max));
  }

  private static float[] values(int exponentBits, int mantissaBits) {
    int bias = (1 << (exponentBits - 1)) - 1;
    float[] values = new float[256];
    for (int pattern = 0; pattern < 256; pattern++) {
      int exponent = (pattern & 0x7F) >>> mantissaBits;
      int mantissa = pattern & ((1 << mantissaBits) - 1);
      float magnitude =
          exponent == 0
              ? Math.scalb((float) mantissa, 1 - bias - mantissaBits)
              : Math.scalb(
                  (float) (mantissa | (1 << mantissaBits)), exponent - bias - mantissaBits);
      values[pattern] = pattern < 128 ? magnitude : -magnitude;
    }
    if (mantissaBits == 3) {
      values[E4M3_NAN] = Float.NaN;
      values[E4M3_NAN | 0x80] = Float.NaN;
    } else {
      for (int pattern = 0x7C; pattern < 0x80; pattern++) {
        values[pattern] = pattern == 0x7C ? Float.POSITIVE_INFINITY : Float.NaN;
        values[pattern | 0x80] = pattern == 0x7C ? Float.NEGATIVE_INFINITY : Float.NaN;
      }
    }
    return values;
  }
}
