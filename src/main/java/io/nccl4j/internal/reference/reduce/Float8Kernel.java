package io.nccl4j.internal.reference.reduce;

import io.nccl4j.DataType;
import io.nccl4j.LowPrecision;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.IntBuffer;
import java.nio.ShortBuffer;

/**
 * 8-bit floating-point numbers of either format. Each step computes in binary16, as NCCL does, and
 * narrows with saturation.
 *
 * <p>The even and the odd numbers of each word of a tile are widened to two binary16 numbers each
 * and narrowed together again, in loops that are short enough to be unrolled and so vectorized.
 * Products with a factor are looked up in a table of 256 entries.
 */
final class Float8Kernel extends ArrayKernel<int[]> {
  /** The number of words in a tile. */
  private static final int WORDS = TILE_BYTES / Integer.BYTES;

  /** The offset of the right operands in the scratch memory, in binary16 numbers. */
  private static final int RIGHTS = 4 * WORDS;

  /** The lower byte of each half of a word. */
  private static final int BYTES = 0x00FF00FF;

  /** The lowest bit of each half of a word. */
  private static final int ONES = 0x00010001;

  /** The top bit of each half of a word. */
  private static final int SIGNS = 0x80008000;

  private final boolean e4m3;
  // Two views of the same memory: left numbers of even, then of odd positions, then the right ones.
  private final IntBuffer pairs;
  private final ShortBuffer halves;
  private final int[] evens = new int[WORDS];
  private final short[] sums = new short[2 * WORDS];
  private byte[] multiples;
  private byte multiplesOf;

  Float8Kernel(DataType type) {
    super(1, new int[WORDS], new int[WORDS], MemorySegment::ofArray);
    this.e4m3 = type == DataType.FLOAT8E4M3;
    ByteBuffer scratch =
        Arena.ofAuto().allocate(4 * TILE_BYTES, 64).asByteBuffer().order(ByteOrder.nativeOrder());
    this.pairs = scratch.asIntBuffer();
    this.halves = scratch.asShortBuffer();
  }

  @Override
  boolean slow(boolean scales) {
    return true;
  }

  @Override
  void sum(int[] left, int[] right, int count) {
    int words = words(count);
    widen(left, right, words);
    add(0, 2 * words);
    add(2 * WORDS, 2 * words);
    narrow(left, right, words);
  }

  @Override
  void prod(int[] left, int[] right, int count) {
    int words = words(count);
    float unit = e4m3 ? 256 : 1;
    widen(left, right, words);
    multiply(0, unit, 2 * words);
    multiply(2 * WORDS, unit, 2 * words);
    narrow(left, right, words);
  }

  private static int words(int count) {
    return Math.min((count + 3) / 4, WORDS);
  }

  private void widen(int[] left, int[] right, int words) {
    if (e4m3) {
      widenE4m3(left, 0, words);
      widenE4m3(right, RIGHTS / 2, words);
    } else {
      widenE5m2(left, 0, words);
      widenE5m2(right, RIGHTS / 2, words);
    }
  }

  private void narrow(int[] left, int[] right, int words) {
    if (e4m3) {
      narrowE4m3(left, right, words);
    } else {
      narrowE5m2(left, words);
    }
  }

  /** An e5m2 number is the upper half of the same number as binary16. */
  private void widenE5m2(int[] from, int at, int words) {
    IntBuffer to = pairs;
    int begin = at & (RIGHTS / 2);
    int length = Math.min(words, WORDS);
    for (int i = 0; i < length; i++) {
      to.put(begin + i, (from[i] & BYTES) << 8);
    }
    for (int i = 0; i < length; i++) {
      to.put(begin + WORDS + i, from[i] & ~BYTES);
    }
  }

  /**
   * The shifted bits of an e4m3 number, except NaN, are 1/256 of it as binary16. Sums lose no
   * precision: a sum that binary16 rounds is too large to be subnormal, even at 1/256. No product
   * is so close to the midpoint of two e4m3 numbers that the lost bits would matter.
   */
  private void widenE4m3(int[] from, int at, int words) {
    IntBuffer to = pairs;
    int begin = at & (RIGHTS / 2);
    int length = Math.min(words, WORDS);
    for (int i = 0; i < length; i++) {
      to.put(begin + i, ((from[i] & 0x007F007F) << 7) | ((from[i] & 0x00800080) << 8));
    }
    for (int i = 0; i < length; i++) {
      to.put(begin + WORDS + i, ((from[i] & 0x7F007F00) >>> 1) | (from[i] & SIGNS));
    }
  }

  private void add(int at, int count) {
    ShortBuffer of = halves;
    short[] to = sums;
    int begin = at & (2 * WORDS);
    int length = Math.min(count, 2 * WORDS);
    for (int i = 0; i < length; i++) {
      float left = Float.float16ToFloat(of.get(begin + i));
      float right = Float.float16ToFloat(of.get(begin + RIGHTS + i));
      to[i] = Float.floatToFloat16(left + right);
    }
    of.put(begin, to, 0, length);
  }

  /** Multiplies like {@code add}; products of two numbers at 1/256 are multiplied by 256. */
  private void multiply(int at, float unit, int count) {
    ShortBuffer of = halves;
    short[] to = sums;
    int begin = at & (2 * WORDS);
    int length = Math.min(count, 2 * WORDS);
    for (int i = 0; i < length; i++) {
      float left = Float.float16ToFloat(of.get(begin + i));
      float right = Float.float16ToFloat(of.get(begin + RIGHTS + i));
      to[i] = Float.floatToFloat16(left * right * unit);
    }
    of.put(begin, to, 0, length);
  }

  private void narrowE5m2(int[] to, int words) {
    IntBuffer from = pairs;
    int[] even = evens;
    int length = Math.min(words, WORDS);
    for (int i = 0; i < length; i++) {
      even[i] = narrowE5m2(from.get(i));
    }
    for (int i = 0; i < length; i++) {
      to[i] = even[i] | (narrowE5m2(from.get(WORDS + i)) << 8);
    }
  }

  /**
   * Rounds two binary16 numbers to e5m2, to the nearest, ties to even. Each result is in the lower
   * byte of its half.
   */
  private static int narrowE5m2(int pair) {
    int size = pair & ~SIGNS;
    int rounded = ((size + 0x007F007F + ((size >>> 8) & ONES)) >>> 8) & BYTES;
    int infinite = all((rounded + 0x00040004) & 0x00800080);
    int nan = all(((size + 0x03FF03FF) & SIGNS) >>> 8);
    int finite = (rounded & ~infinite) | (0x007B007B & infinite);
    int number = finite | ((pair & SIGNS) >>> 8);
    return (number & ~nan) | (0x007F007F & nan);
  }

  private void narrowE4m3(int[] left, int[] right, int words) {
    IntBuffer from = pairs;
    int[] even = evens;
    int length = Math.min(words, WORDS);
    for (int i = 0; i < length; i++) {
      // The top bit of each byte that is NaN.
      left[i] = (nansE4m3(left[i]) | nansE4m3(right[i])) & 0x80808080;
    }
    for (int i = 0; i < length; i++) {
      even[i] = narrowE4m3(from.get(i));
    }
    for (int i = 0; i < length; i++) {
      int nan = (left[i] << 1) - (left[i] >>> 7);
      left[i] = (nan & 0x7F7F7F7F) | (~nan & (even[i] | (narrowE4m3(from.get(WORDS + i)) << 8)));
    }
  }

  /**
   * Rounds two binary16 numbers, which are 1/256 of their value, to e4m3. Each result is in the
   * lower byte of its half.
   */
  private static int narrowE4m3(int pair) {
    int size = pair & ~SIGNS;
    int rounded = ((size + 0x003F003F + ((size >>> 7) & ONES)) >>> 7) & BYTES;
    int tooLarge = all((rounded + ONES) & 0x00800080);
    return (rounded & ~tooLarge) | (0x007E007E & tooLarge) | ((pair & SIGNS) >>> 8);
  }

  /** Sets the top bit of each byte that is NaN; the other bits are undefined. */
  private static int nansE4m3(int word) {
    return (word & 0x7F7F7F7F) + 0x01010101;
  }

  /** Fills the lower byte of each half if its top bit is set. */
  private static int all(int tops) {
    return (tops << 1) - (tops >>> 7);
  }

  @Override
  void scale(int[] tile, long factor, int count) {
    byte by = (byte) factor;
    if (by != multiplesOf || multiples == null) {
      multiples = new byte[256];
      for (int value = 0; value < multiples.length; value++) {
        multiples[value] = narrow(widen((byte) value) * widen(by));
      }
      multiplesOf = by;
    }
    byte[] results = multiples;
    int words = (count + 3) / 4;
    for (int i = 0; i < words; i++) {
      int word = tile[i];
      tile[i] =
          at(results, word & 0xFF)
              | (at(results, (word >>> 8) & 0xFF) << 8)
              | (at(results, (word >>> 16) & 0xFF) << 16)
              | (at(results, word >>> 24) << 24);
    }
  }

  private static int at(byte[] results, int index) {
    return results[index] & 0xFF;
  }

  private float widen(byte bits) {
    return e4m3 ? LowPrecision.fromFloat8e4m3(bits) : LowPrecision.fromFloat8e5m2(bits);
  }

  private byte narrow(float value) {
    float half = LowPrecision.fromFloat16(LowPrecision.toFloat16(value));
    return e4m3 ? LowPrecision.toFloat8e4m3(half) : LowPrecision.toFloat8e5m2(half);
  }
}
