package io.nccl4j.internal.reference.reduce;

import io.nccl4j.internal.util.LowPrecision;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;

/**
 * Sums and products of bfloat16 numbers. Each step computes in binary32, which is precise enough,
 * and rounds.
 *
 * <p>Each integer of a tile contains two numbers. A bfloat16 is the upper half of a binary32, so
 * the lower numbers are widened by a shift, and then the upper ones by a mask. The bits are written
 * as integers and read as floats through scratch memory, because the compiler vectorizes all of
 * these loops, but no reinterpretation of bits.
 */
final class Bfloat16Kernel extends Kernel<int[]> {
  private static final int INFINITY = 0x7F800000;
  private static final int UPPER = 0xFFFF0000;

  /** The number of pairs in a tile, and the index of the right operands in the scratch memory. */
  private static final int PAIRS = TILE_BYTES / Integer.BYTES;

  private final IntBuffer bits;
  private final FloatBuffer numbers;
  private final int[] lower = new int[PAIRS];

  Bfloat16Kernel() {
    super(2, count -> new int[count / 2], MemorySegment::ofArray);
    ByteBuffer scratch =
        Arena.ofAuto().allocate(2 * TILE_BYTES, 64).asByteBuffer().order(ByteOrder.nativeOrder());
    this.bits = scratch.asIntBuffer();
    this.numbers = scratch.asFloatBuffer();
  }

  @Override
  void combine(ReductionOp.Kind kind, int[] left, int[] right, int count) {
    int pairs = (count + 1) / 2;
    widenLower(left, 0, pairs);
    widenLower(right, PAIRS, pairs);
    combine(kind, pairs);
    narrowLower(pairs);
    widenUpper(left, 0, pairs);
    widenUpper(right, PAIRS, pairs);
    combine(kind, pairs);
    narrowBoth(left, pairs);
  }

  @Override
  void scale(int[] tile, long factor, int count) {
    int pairs = (count + 1) / 2;
    float by = LowPrecision.fromBfloat16((short) factor);
    widenLower(tile, 0, pairs);
    multiply(by, pairs);
    narrowLower(pairs);
    widenUpper(tile, 0, pairs);
    multiply(by, pairs);
    narrowBoth(tile, pairs);
  }

  private void combine(ReductionOp.Kind kind, int pairs) {
    FloatBuffer of = numbers;
    int length = Math.min(pairs, PAIRS);
    if (kind == ReductionOp.Kind.SUM) {
      for (int i = 0; i < length; i++) {
        of.put(i, of.get(i) + of.get(PAIRS + i));
      }
    } else {
      for (int i = 0; i < length; i++) {
        of.put(i, of.get(i) * of.get(PAIRS + i));
      }
    }
  }

  private void multiply(float by, int pairs) {
    FloatBuffer of = numbers;
    int length = Math.min(pairs, PAIRS);
    for (int i = 0; i < length; i++) {
      of.put(i, of.get(i) * by);
    }
  }

  private void widenLower(int[] from, int at, int pairs) {
    IntBuffer to = bits;
    int begin = at & PAIRS;
    int length = Math.min(pairs, PAIRS);
    for (int i = 0; i < length; i++) {
      to.put(begin + i, from[i] << 16);
    }
  }

  private void widenUpper(int[] from, int at, int pairs) {
    IntBuffer to = bits;
    int begin = at & PAIRS;
    int length = Math.min(pairs, PAIRS);
    for (int i = 0; i < length; i++) {
      to.put(begin + i, from[i] & UPPER);
    }
  }

  private void narrowLower(int pairs) {
    IntBuffer from = bits;
    int[] to = lower;
    int length = Math.min(pairs, PAIRS);
    for (int i = 0; i < length; i++) {
      to[i] = rounded(from.get(i)) >>> 16;
    }
  }

  private void narrowBoth(int[] to, int pairs) {
    IntBuffer upper = bits;
    int[] low = lower;
    int length = Math.min(pairs, PAIRS);
    for (int i = 0; i < length; i++) {
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
