package io.nccl4j.internal.reference.reduce;

/**
 * Maximum and minimum of floating-point numbers by their bits, which the compiler vectorizes; it
 * would not vectorize a test for NaN.
 *
 * <p>The bits are mapped to a key that orders as a signed integer, with -0 below +0; the mapping is
 * its own inverse. A NaN gets the key that loses against every number, and this key maps back to a
 * NaN. So a NaN is ignored unless both operands are NaN.
 */
final class FloatTotalOrder {
  private FloatTotalOrder() {}

  /**
   * Replaces each left number by the larger one.
   *
   * @param infinity the bits of infinity; larger bits are NaN
   */
  static void max(int[] left, int[] right, int infinity, int count) {
    for (int i = 0; i < count; i++) {
      left[i] = fromOrderKey(Math.max(highKey(left[i], infinity), highKey(right[i], infinity)));
    }
  }

  /** Replaces each left number by the smaller one. */
  static void min(int[] left, int[] right, int infinity, int count) {
    for (int i = 0; i < count; i++) {
      left[i] = fromOrderKey(Math.min(lowKey(left[i], infinity), lowKey(right[i], infinity)));
    }
  }

  /** Like {@code max}, for 16-bit numbers, two in each element. */
  static void maxOfPairs(int[] left, int[] right, int infinity, int count) {
    for (int i = 0; i < count; i++) {
      int low = Math.max(highKey(left[i] << 16, infinity), highKey(right[i] << 16, infinity));
      int high =
          Math.max(
              highKey(left[i] & 0xFFFF0000, infinity), highKey(right[i] & 0xFFFF0000, infinity));
      left[i] = (fromOrderKey(low) >>> 16) | (fromOrderKey(high) & 0xFFFF0000);
    }
  }

  /** Like {@code min}, for 16-bit numbers, two in each element. */
  static void minOfPairs(int[] left, int[] right, int infinity, int count) {
    for (int i = 0; i < count; i++) {
      int low = Math.min(lowKey(left[i] << 16, infinity), lowKey(right[i] << 16, infinity));
      int high =
          Math.min(lowKey(left[i] & 0xFFFF0000, infinity), lowKey(right[i] & 0xFFFF0000, infinity));
      left[i] = (fromOrderKey(low) >>> 16) | (fromOrderKey(high) & 0xFFFF0000);
    }
  }

  private static int fromOrderKey(int bits) {
    return bits ^ ((bits >> 31) & Integer.MAX_VALUE);
  }

  /** Returns all ones for a NaN, else 0. */
  private static int nan(int bits, int infinity) {
    return (infinity - (bits & Integer.MAX_VALUE)) >> 31;
  }

  private static int highKey(int bits, int infinity) {
    int nan = nan(bits, infinity);
    return (fromOrderKey(bits) & ~nan) | (Integer.MIN_VALUE & nan);
  }

  private static int lowKey(int bits, int infinity) {
    int nan = nan(bits, infinity);
    return (fromOrderKey(bits) & ~nan) | (Integer.MAX_VALUE & nan);
  }

  /** Like {@code max}, for 64-bit numbers. */
  static void max(long[] left, long[] right, long infinity, int count) {
    for (int i = 0; i < count; i++) {
      left[i] = fromOrderKey(Math.max(highKey(left[i], infinity), highKey(right[i], infinity)));
    }
  }

  /** Like {@code min}, for 64-bit numbers. */
  static void min(long[] left, long[] right, long infinity, int count) {
    for (int i = 0; i < count; i++) {
      left[i] = fromOrderKey(Math.min(lowKey(left[i], infinity), lowKey(right[i], infinity)));
    }
  }

  private static long fromOrderKey(long bits) {
    return bits ^ ((bits >> 63) & Long.MAX_VALUE);
  }

  private static long nan(long bits, long infinity) {
    return (infinity - (bits & Long.MAX_VALUE)) >> 63;
  }

  private static long highKey(long bits, long infinity) {
    long nan = nan(bits, infinity);
    return (fromOrderKey(bits) & ~nan) | (Long.MIN_VALUE & nan);
  }

  private static long lowKey(long bits, long infinity) {
    long nan = nan(bits, infinity);
    return (fromOrderKey(bits) & ~nan) | (Long.MAX_VALUE & nan);
  }
}
