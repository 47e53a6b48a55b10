package io.nccl4j.internal.util;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.DataType;
import io.nccl4j.fixtures.Seed;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.SplittableRandom;
import java.util.TreeMap;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * Tests the low-precision floats against an oracle that uses only the definition of the formats
 * (sign, exponent, mantissa) and a search among all values for the nearest one.
 */
class LowPrecisionTest {
  /** A low-precision format and the conversions under test. */
  enum Format {
    FLOAT16(5, 10, true, true),
    BFLOAT16(8, 7, true, true),
    FLOAT8E4M3(4, 3, false, false),
    FLOAT8E5M2(5, 2, true, false);

    final int exponentBits;
    final int mantissaBits;
    final boolean infinities;
    final boolean overflowsToInfinity;

    Format(int exponentBits, int mantissaBits, boolean infinities, boolean overflowsToInfinity) {
      this.exponentBits = exponentBits;
      this.mantissaBits = mantissaBits;
      this.infinities = infinities;
      this.overflowsToInfinity = overflowsToInfinity;
    }

    int patterns() {
      return 1 << (1 + exponentBits + mantissaBits);
    }

    int signBit() {
      return patterns() / 2;
    }

    /** Returns the value of a bit pattern by the definition of the format. */
    double valueOf(int pattern) {
      int fieldMax = (1 << exponentBits) - 1;
      int field = (pattern >> mantissaBits) & fieldMax;
      int mantissa = pattern & ((1 << mantissaBits) - 1);
      double sign = (pattern & signBit()) == 0 ? 1 : -1;
      if (infinities && field == fieldMax) {
        return mantissa == 0 ? sign / 0 : Double.NaN;
      }
      if (!infinities && field == fieldMax && mantissa == (1 << mantissaBits) - 1) {
        return Double.NaN;
      }
      int bias = (1 << (exponentBits - 1)) - 1;
      double fraction = mantissa * Math.pow(2, -mantissaBits);
      return field == 0
          ? sign * fraction * Math.pow(2, 1 - bias)
          : sign * (1 + fraction) * Math.pow(2, field - bias);
    }

    float fromBits(int pattern) {
      return switch (this) {
        case FLOAT16 -> LowPrecision.fromFloat16((short) pattern);
        case BFLOAT16 -> LowPrecision.fromBfloat16((short) pattern);
        case FLOAT8E4M3 -> LowPrecision.fromFloat8e4m3((byte) pattern);
        case FLOAT8E5M2 -> LowPrecision.fromFloat8e5m2((byte) pattern);
      };
    }

    int toBits(float value) {
      return switch (this) {
        case FLOAT16 -> LowPrecision.toFloat16(value) & 0xFFFF;
        case BFLOAT16 -> LowPrecision.toBfloat16(value) & 0xFFFF;
        case FLOAT8E4M3 -> LowPrecision.toFloat8e4m3(value) & 0xFF;
        case FLOAT8E5M2 -> LowPrecision.toFloat8e5m2(value) & 0xFF;
      };
    }

    /** Returns all finite non-negative values with their patterns. */
    NavigableMap<Double, Integer> magnitudes() {
      NavigableMap<Double, Integer> magnitudes = new TreeMap<>();
      for (int pattern = 0; pattern < signBit(); pattern++) {
        if (Double.isFinite(valueOf(pattern))) {
          magnitudes.put(valueOf(pattern), pattern);
        }
      }
      return magnitudes;
    }
  }

  @ParameterizedTest
  @EnumSource
  void patternsHaveTheirDefinedValues(Format format) {
    for (int pattern = 0; pattern < format.patterns(); pattern++) {
      double expected = format.valueOf(pattern);
      double actual = format.fromBits(pattern);
      assertEquals(expected, actual, describe(format, pattern));
      assertEquals(
          Double.doubleToLongBits(expected),
          Double.doubleToLongBits(actual),
          describe(format, pattern) + ", with its sign");
    }
  }

  @ParameterizedTest
  @EnumSource
  void finiteValuesAndUnsaturatedInfinitiesRoundTrip(Format format) {
    for (int pattern = 0; pattern < format.patterns(); pattern++) {
      float value = format.fromBits(pattern);
      if (Float.isFinite(value) || (Float.isInfinite(value) && format.overflowsToInfinity)) {
        assertEquals(pattern, format.toBits(value), describe(format, pattern));
      }
    }
  }

  @ParameterizedTest
  @EnumSource
  void valuesRoundToNearestAndTiesToEven(Format format) {
    Map.Entry<Double, Integer> low = null;
    for (Map.Entry<Double, Integer> high : format.magnitudes().entrySet()) {
      if (low != null) {
        float middle = (float) ((low.getKey() + high.getKey()) / 2);
        int even = low.getValue() % 2 == 0 ? low.getValue() : high.getValue();
        // The middle of two neighbours and the values next to it are exact in float.
        checkBothSigns(format, middle, even);
        checkBothSigns(format, Math.nextDown(middle), low.getValue());
        checkBothSigns(format, Math.nextUp(middle), high.getValue());
        checkBothSigns(format, Math.nextUp(low.getKey().floatValue()), low.getValue());
        checkBothSigns(format, Math.nextDown(high.getKey().floatValue()), high.getValue());
      }
      low = high;
    }
  }

  @ParameterizedTest
  @EnumSource
  void randomValuesRoundToNearest(Format format) {
    List<Map.Entry<Double, Integer>> all = new ArrayList<>(format.magnitudes().entrySet());
    SplittableRandom random = Seed.random("nearest " + format);
    for (int i = 0; i < 500; i++) {
      float value = Math.abs(Float.intBitsToFloat(random.nextInt()));
      if (value <= all.getLast().getKey()) {
        checkBothSigns(format, value, bruteForceNearest(all, value));
      }
      double inRange = all.get(random.nextInt(all.size())).getKey() * random.nextDouble(0.7, 1);
      checkBothSigns(format, (float) inRange, bruteForceNearest(all, (float) inRange));
    }
  }

  @ParameterizedTest
  @EnumSource
  void largeValuesOverflowOrSaturate(Format format) {
    double largest = format.magnitudes().lastKey();
    int largestPattern = format.magnitudes().lastEntry().getValue();
    double step = largest - format.magnitudes().lowerKey(largest);
    float threshold = (float) (largest + step / 2);
    int beyond =
        format.overflowsToInfinity
            ? ((1 << format.exponentBits) - 1) << format.mantissaBits
            : largestPattern;
    checkBothSigns(format, Math.nextDown(threshold), largestPattern);
    checkBothSigns(format, threshold, beyond);
    checkBothSigns(format, Float.MAX_VALUE, beyond);
    checkBothSigns(format, Float.POSITIVE_INFINITY, beyond);
  }

  @ParameterizedTest
  @EnumSource
  void tinyValuesBecomeSignedZero(Format format) {
    double smallest = format.magnitudes().higherKey(0.0);
    checkBothSigns(format, (float) (smallest / 2), 0);
    checkBothSigns(format, Float.MIN_VALUE, 0);
    checkBothSigns(format, 0f, 0);
    checkBothSigns(format, Math.nextUp((float) (smallest / 2)), 1);
  }

  @ParameterizedTest
  @EnumSource
  void nanStaysNan(Format format) {
    for (int bits : new int[] {0x7FC00000, 0xFFC00000, 0x7F800001, 0x7FFFFFFF, 0xFF812345}) {
      float nan = format.fromBits(format.toBits(Float.intBitsToFloat(bits)));
      assertTrue(Float.isNaN(nan), () -> "NaN of bits " + Integer.toHexString(bits));
    }
  }

  @ParameterizedTest
  @EnumSource
  void doublesAreRoundedOnce(Format format) {
    DataType type = DataType.valueOf(format.name());
    MemorySegment segment = MemorySegment.ofArray(new byte[8]);
    Map.Entry<Double, Integer> low = null;
    for (Map.Entry<Double, Integer> high : format.magnitudes().entrySet()) {
      if (low != null) {
        double middle = (low.getKey() + high.getKey()) / 2;
        // Closer to the middle than float resolves: float would first round to the tie.
        type.set(segment, 0, Math.nextUp(middle));
        assertEquals(high.getKey(), type.get(segment, 0), "above " + middle);
        type.set(segment, 0, -Math.nextUp(middle));
        assertEquals(-high.getKey(), type.get(segment, 0), "below -" + middle);
        type.set(segment, 0, Math.nextDown(middle));
        assertEquals(low.getKey(), type.get(segment, 0), "below " + middle);
      }
      low = high;
    }
  }

  private static void checkBothSigns(Format format, float value, int magnitudePattern) {
    assertEquals(magnitudePattern, format.toBits(value), () -> format + " of " + value);
    assertEquals(
        magnitudePattern | format.signBit(), format.toBits(-value), () -> format + " of -" + value);
  }

  private static int bruteForceNearest(List<Map.Entry<Double, Integer>> all, float value) {
    int best = 0;
    double bestDistance = value;
    for (int i = 1; i < all.size(); i++) {
      // Exact for the candidates that matter: they lie within a factor of two of the value, or are
      // subnormal.
      double distance = Math.abs(all.get(i).getKey() - value);
      if (distance < bestDistance || (distance == bestDistance && all.get(i).getValue() % 2 == 0)) {
        best = i;
        bestDistance = distance;
      }
    }
    return all.get(best).getValue();
  }

  private static String describe(Format format, int pattern) {
    return format + " pattern 0x" + Integer.toHexString(pattern);
  }
}
