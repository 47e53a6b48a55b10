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
  /** The top bit and the lowest bit of each byte. */
  private static final int TOPS = 0x80808080;

  private static final int ONES = 0x01010101;

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

  /**
   * Like {@code max}, for 8-bit numbers, four in each element; infinity becomes the largest number.
   */
  static void maxOfFours(int[] left, int[] right, boolean e4m3, int count) {
    pickOfFours(left, right, e4m3, 0, count);
  }

  /** Like {@code min}, for 8-bit numbers, four in each element. */
  static void minOfFours(int[] left, int[] right, boolean e4m3, int count) {
    pickOfFours(left, right, e4m3, -1, count);
  }

  /** Selects the larger numbers, or the smaller ones if {@code flip} reverses the order. */
  private static void pickOfFours(int[] left, int[] right, boolean e4m3, int flip, int count) {
    int toNan = e4m3 ? ONES : 3 * ONES;
    keys(left, flip, toNan, count);
    keys(right, flip, toNan, count);
    larger(left, right, flip, count);
    if (!e4m3) {
      saturate(left, count);
    }
  }

  // Each loop has its own method: with all in one method, only some were vectorized.

  private static void keys(int[] words, int flip, int toNan, int count) {
    for (int i = 0; i < count; i++) {
      words[i] = (key(words[i]) ^ flip) & ~nanOfFour(words[i], toNan);
    }
  }

  private static void larger(int[] left, int[] right, int flip, int count) {
    for (int i = 0; i < count; i++) {
      int larger = notLess(left[i], right[i]);
      left[i] = number(((left[i] & larger) | (right[i] & ~larger)) ^ flip);
    }
  }

  /** Maps four numbers to keys that order as unsigned integers. */
  private static int key(int word) {
    return word ^ (all(word & TOPS) | TOPS);
  }

  /** Maps four keys back to numbers. */
  private static int number(int keys) {
    return keys ^ (all(~keys & TOPS) | TOPS);
  }

  /** Replaces infinite e5m2 numbers by the largest finite ones. */
  private static void saturate(int[] words, int count) {
    for (int i = 0; i < count; i++) {
      int size = words[i] & ~TOPS;
      words[i] -= ((size + 4 * ONES) & ~(size + 3 * ONES) & TOPS) >>> 7;
    }
  }

  /**
   * Fills the bytes that are NaN.
   *
   * @param toNan the addend for each byte that sets the top bit of those whose other bits are NaN
   */
  private static int nanOfFour(int word, int toNan) {
    return all(((word & ~TOPS) + toNan) & TOPS);
  }

  /** Fills the bytes whose top bit is set; no other bits may be set. */
  private static int all(int tops) {
    return (tops << 1) - (tops >>> 7);
  }

  /** Fills the bytes in which left is not less than right. */
  private static int notLess(int left, int right) {
    int sameTop = ~(left ^ right) & ((left | TOPS) - (right & ~TOPS));
    return all(((left & ~right) | sameTop) & TOPS);
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
