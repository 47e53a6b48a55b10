package io.nccl4j.internal.reference.reduce;

import io.nccl4j.LowPrecision;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;

/**
 * Bfloat16 numbers: each step computes in binary32, which has bits enough, and rounds.
 *
 * <p>Two numbers lie in each integer of a tile. A bfloat16 is the upper half of a binary32, so the
 * lower and the upper numbers become binary32 in a shift and a mask each, one after the other. That
 * the same bits are an integer and then a number takes memory that both can be read from: the
 * compiler vectorizes all of these loops, but no reinterpretation of bits.
 */
final class Bfloat16Kernel extends ArrayKernel<int[]> {
  private static final int INFINITY = 0x7F800000;
  private static final int UPPER = 0xFFFF0000;

  /** How many pairs a tile has, and where the right operands begin in the scratch memory. */
  private static final int MOST = TILE_BYTES / Integer.BYTES;

  private final IntBuffer bits;
  private final FloatBuffer numbers;
  private final int[] lower = new int[MOST];

  Bfloat16Kernel() {
    super(2, new int[MOST], new int[MOST], MemorySegment::ofArray);
    ByteBuffer scratch =
        Arena.ofAuto().allocate(2 * TILE_BYTES, 64).asByteBuffer().order(ByteOrder.nativeOrder());
    this.bits = scratch.asIntBuffer();
    this.numbers = scratch.asFloatBuffer();
  }

  @Override
  void sum(int[] left, int[] right, int count) {
    int pairs = (count + 1) / 2;
    takeLower(left, 0, pairs);
    takeLower(right, MOST, pairs);
    add(pairs);
    giveLower(pairs);
    takeUpper(left, 0, pairs);
    takeUpper(right, MOST, pairs);
    add(pairs);
    giveBoth(left, pairs);
  }

  @Override
  void prod(int[] left, int[] right, int count) {
    int pairs = (count + 1) / 2;
    takeLower(left, 0, pairs);
    takeLower(right, MOST, pairs);
    multiply(pairs);
    giveLower(pairs);
    takeUpper(left, 0, pairs);
    takeUpper(right, MOST, pairs);
    multiply(pairs);
    giveBoth(left, pairs);
  }

  @Override
  void scale(int[] tile, long factor, int count) {
    int pairs = (count + 1) / 2;
    float by = LowPrecision.fromBfloat16((short) factor);
    takeLower(tile, 0, pairs);
    multiply(by, pairs);
    giveLower(pairs);
    takeUpper(tile, 0, pairs);
    multiply(by, pairs);
    giveBoth(tile, pairs);
  }

  private void add(int pairs) {
    FloatBuffer of = numbers;
    int most = Math.min(pairs, MOST);
    for (int i = 0; i < most; i++) {
      of.put(i, of.get(i) + of.get(MOST + i));
    }
  }

  private void multiply(int pairs) {
    FloatBuffer of = numbers;
    int most = Math.min(pairs, MOST);
    for (int i = 0; i < most; i++) {
      of.put(i, of.get(i) * of.get(MOST + i));
    }
  }

  private void multiply(float by, int pairs) {
    FloatBuffer of = numbers;
    int most = Math.min(pairs, MOST);
    for (int i = 0; i < most; i++) {
      of.put(i, of.get(i) * by);
    }
  }

  private void takeLower(int[] from, int at, int pairs) {
    IntBuffer to = bits;
    int begin = at & MOST;
    int most = Math.min(pairs, MOST);
    for (int i = 0; i < most; i++) {
      to.put(begin + i, from[i] << 16);
    }
  }

  private void takeUpper(int[] from, int at, int pairs) {
    IntBuffer to = bits;
    int begin = at & MOST;
    int most = Math.min(pairs, MOST);
    for (int i = 0; i < most; i++) {
      to.put(begin + i, from[i] & UPPER);
    }
  }

  private void giveLower(int pairs) {
    IntBuffer from = bits;
    int[] to = lower;
    int most = Math.min(pairs, MOST);
    for (int i = 0; i < most; i++) {
      to[i] = rounded(from.get(i)) >>> 16;
    }
  }

  private void giveBoth(int[] to, int pairs) {
    IntBuffer upper = bits;
    int[] low = lower;
    int most = Math.min(pairs, MOST);
    for (int i = 0; i < most; i++) {
      to[i] = (rounded(upper.get(i)) & UPPER) | low[i];
    }
  }

  /** Rounds to the upper half, to the nearest value, ties to even, as {@link LowPrecision} does. */
  private static int rounded(int bits) {
    int nan = (INFINITY - (bits & Integer.MAX_VALUE)) >> 31;
    int nearest = bits + 0x7FFF + ((bits >>> 16) & 1);
    return (nearest & ~nan) | (0x7FFF0000 & nan);
  }
}
