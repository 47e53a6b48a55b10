package io.nccl4j.reference;

/**
 * Maximum and minimum of floating-point numbers by their bits, which the compiler vectorizes where
 * it would not with a test for NaN.
 *
 * <p>The bits are turned into a key that orders as a signed integer, -0 below +0; turning is its
 * own inverse. A NaN gets the key that loses against every number, and that key is itself turned
 * into a NaN: so a NaN is ignored, and two of them give one.
 */
final class FloatOrder {
  private FloatOrder() {}

  /**
   * Replaces each left number by the larger one.
   *
   * @param infinity the bits of infinity: what is above them is NaN
   */
  static void max(int[] left, int[] right, int infinity, int count) {
    for (int i = 0; i < count; i++) {
      left[i] = turn(Math.max(highKey(left[i], infinity), highKey(right[i], infinity)));
    }
  }

  /** Replaces each left number by the smaller one. */
  static void min(int[] left, int[] right, int infinity, int count) {
    for (int i = 0; i < count; i++) {
      left[i] = turn(Math.min(lowKey(left[i], infinity), lowKey(right[i], infinity)));
    }
  }

  /** As {@code max}, of 16-bit numbers, two in each element. */
  static void maxOfPairs(int[] left, int[] right, int infinity, int count) {
    for (int i = 0; i < count; i++) {
      int low = Math.max(highKey(left[i] << 16, infinity), highKey(right[i] << 16, infinity));
      int high =
          Math.max(
              highKey(left[i] & 0xFFFF0000, infinity), highKey(right[i] & 0xFFFF0000, infinity));
      left[i] = (turn(low) >>> 16) | (turn(high) & 0xFFFF0000);
    }
  }

  /** As {@code min}, of 16-bit numbers, two in each element. */
  static void minOfPairs(int[] left, int[] right, int infinity, int count) {
    for (int i = 0; i < count; i++) {
      int low = Math.min(lowKey(left[i] << 16, infinity), lowKey(right[i] << 16, infinity));
      int high =
          Math.min(lowKey(left[i] & 0xFFFF0000, infinity), lowKey(right[i] & 0xFFFF0000, infinity));
      left[i] = (turn(low) >>> 16) | (turn(high) & 0xFFFF0000);
    }
  }

  private static int turn(int bits) {
    return bits ^ ((bits >> 31) & Integer.MAX_VALUE);
  }

  /** Returns all ones for a NaN, else 0. */
  private static int nan(int bits, int infinity) {
    return (infinity - (bits & Integer.MAX_VALUE)) >> 31;
  }

  private static int highKey(int bits, int infinity) {
    int nan = nan(bits, infinity);
    return (turn(bits) & ~nan) | (Integer.MIN_VALUE & nan);
  }

  private static int lowKey(int bits, int infinity) {
    int nan = nan(bits, infinity);
    return (turn(bits) & ~nan) | (Integer.MAX_VALUE & nan);
  }

  /** As {@code max}, of 64-bit numbers. */
  static void max(long[] left, long[] right, long infinity, int count) {
    for (int i = 0; i < count; i++) {
      left[i] = turn(Math.max(highKey(left[i], infinity), highKey(right[i], infinity)));
    }
  }

  /** As {@code min}, of 64-bit numbers. */
  static void min(long[] left, long[] right, long infinity, int count) {
    for (int i = 0; i < count; i++) {
      left[i] = turn(Math.min(lowKey(left[i], infinity), lowKey(right[i], infinity)));
    }
  }

  private static long turn(long bits) {
    return bits ^ ((bits >> 63) & Long.MAX_VALUE);
  }

  private static long nan(long bits, long infinity) {
    return (infinity - (bits & Long.MAX_VALUE)) >> 63;
  }

  private static long highKey(long bits, long infinity) {
    long nan = nan(bits, infinity);
    return (turn(bits) & ~nan) | (Long.MIN_VALUE & nan);
  }

  private static long lowKey(long bits, long infinity) {
    long nan = nan(bits, infinity);
    return (turn(bits) & ~nan) | (Long.MAX_VALUE & nan);
  }
}
