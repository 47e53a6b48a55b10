package io.nccl4j.reference;

import io.nccl4j.MiniFloat;
import java.lang.foreign.MemorySegment;

/**
 * Bfloat16 numbers: each step computes in binary32, which has bits enough, and rounds.
 *
 * <p>Two numbers lie in each integer of a tile. A bfloat16 is the upper half of a binary32, so the
 * lower and the upper numbers become binary32 in a shift and a mask each, one after the other; the
 * compiler vectorizes all of these loops, but no reinterpretation of bits, which is a copy here.
 */
final class Bfloat16Kernel extends ArrayKernel<int[]> {
  private static final int INFINITY = 0x7F800000;
  private static final int UPPER = 0xFFFF0000;

  private final Ints bits = new Ints();
  private final Ints lowResults = new Ints();
  private final float[] lefts = new float[TILE_BYTES / Float.BYTES];
  private final float[] rights = new float[TILE_BYTES / Float.BYTES];
  private final MemorySegment leftsView = MemorySegment.ofArray(lefts);
  private final MemorySegment rightsView = MemorySegment.ofArray(rights);

  Bfloat16Kernel() {
    super(2, new int[TILE_BYTES / 4], new int[TILE_BYTES / 4], MemorySegment::ofArray, TILE_BYTES);
  }

  @Override
  void sum(int[] left, int[] right, int count) {
    int pairs = (count + 1) / 2;
    takeLower(left, right, pairs);
    add(lefts, rights, pairs);
    giveLower(pairs);
    takeUpper(left, right, pairs);
    add(lefts, rights, pairs);
    giveBoth(left, pairs);
  }

  @Override
  void prod(int[] left, int[] right, int count) {
    int pairs = (count + 1) / 2;
    takeLower(left, right, pairs);
    multiply(lefts, rights, pairs);
    giveLower(pairs);
    takeUpper(left, right, pairs);
    multiply(lefts, rights, pairs);
    giveBoth(left, pairs);
  }

  @Override
  void scale(int[] tile, long factor, int count) {
    int pairs = (count + 1) / 2;
    float by = MiniFloat.fromBfloat16((short) factor);
    takeLower(tile, leftsView, pairs);
    multiply(lefts, by, pairs);
    giveLower(pairs);
    takeUpper(tile, leftsView, pairs);
    multiply(lefts, by, pairs);
    giveBoth(tile, pairs);
  }

  @Override
  void max(Tile<int[]> left, Tile<int[]> right, int count) {
    FloatOrder.maxOfPairs(left.array(), right.array(), INFINITY, (count + 1) / 2);
  }

  @Override
  void min(Tile<int[]> left, Tile<int[]> right, int count) {
    FloatOrder.minOfPairs(left.array(), right.array(), INFINITY, (count + 1) / 2);
  }

  private static void add(float[] left, float[] right, int count) {
    for (int i = 0; i < count; i++) {
      left[i] += right[i];
    }
  }

  private static void multiply(float[] left, float[] right, int count) {
    for (int i = 0; i < count; i++) {
      left[i] *= right[i];
    }
  }

  private static void multiply(float[] left, float right, int count) {
    for (int i = 0; i < count; i++) {
      left[i] *= right;
    }
  }

  private void takeLower(int[] left, int[] right, int pairs) {
    takeLower(left, leftsView, pairs);
    takeLower(right, rightsView, pairs);
  }

  private void takeLower(int[] from, MemorySegment to, int pairs) {
    int[] into = bits.array();
    for (int i = 0; i < pairs; i++) {
      into[i] = from[i] << 16;
    }
    MemorySegment.copy(bits.view(), 0, to, 0, (long) pairs * Integer.BYTES);
  }

  private void takeUpper(int[] left, int[] right, int pairs) {
    takeUpper(left, leftsView, pairs);
    takeUpper(right, rightsView, pairs);
  }

  private void takeUpper(int[] from, MemorySegment to, int pairs) {
    int[] into = bits.array();
    for (int i = 0; i < pairs; i++) {
      into[i] = from[i] & UPPER;
    }
    MemorySegment.copy(bits.view(), 0, to, 0, (long) pairs * Integer.BYTES);
  }

  private void giveLower(int pairs) {
    MemorySegment.copy(leftsView, 0, bits.view(), 0, (long) pairs * Integer.BYTES);
    int[] from = bits.array();
    int[] to = lowResults.array();
    for (int i = 0; i < pairs; i++) {
      to[i] = rounded(from[i]) >>> 16;
    }
  }

  private void giveBoth(int[] to, int pairs) {
    MemorySegment.copy(leftsView, 0, bits.view(), 0, (long) pairs * Integer.BYTES);
    int[] upper = bits.array();
    int[] lower = lowResults.array();
    for (int i = 0; i < pairs; i++) {
      to[i] = (rounded(upper[i]) & UPPER) | lower[i];
    }
  }

  /** Rounds to the upper half, to the nearest value, ties to even, as {@link MiniFloat} does. */
  private static int rounded(int bits) {
    int nan = (INFINITY - (bits & Integer.MAX_VALUE)) >> 31;
    int nearest = bits + 0x7FFF + ((bits >>> 16) & 1);
    return (nearest & ~nan) | (0x7FFF0000 & nan);
  }
}
