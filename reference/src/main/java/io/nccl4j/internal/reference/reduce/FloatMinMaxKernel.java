package io.nccl4j.internal.reference.reduce;

import io.nccl4j.DataType;
import java.lang.foreign.MemorySegment;

/**
 * Maximum and minimum of floating-point numbers of 32 bits, or of 16 bits, two in each integer. The
 * bits are compared as integers, which the compiler vectorizes; it would not vectorize a test for
 * NaN.
 *
 * <p>The bits are mapped to a key that orders as a signed integer, with -0 below +0; the mapping is
 * its own inverse. A NaN gets the least key, which maps back to a NaN. So a NaN is ignored unless
 * both operands are NaN. A minimum is a maximum of numbers of the opposite sign.
 */
final class FloatMinMaxKernel extends Kernel<int[]> {
  private static final int SIGN = Integer.MIN_VALUE;
  private static final int UPPER = 0xFFFF0000;

  private final boolean pairs;
  // The bits of infinity; those of a 16-bit type are in the upper half.
  private final int infinity;

  FloatMinMaxKernel(DataType type) {
    super(type.bytes(), count -> new int[count * type.bytes() / 4], MemorySegment::ofArray);
    this.pairs = type.bytes() == 2;
    this.infinity = type == DataType.FLOAT16 ? 0x7C000000 : 0x7F800000;
  }

  @Override
  void combine(ReductionOp.Kind kind, int[] left, int[] right, int count) {
    int flip = kind == ReductionOp.Kind.MAX ? 0 : SIGN;
    if (pairs) {
      maxOfPairs(left, right, infinity, flip, (count + 1) / 2);
    } else {
      max(left, right, infinity, flip, count);
    }
  }

  private static void max(int[] left, int[] right, int infinity, int flip, int count) {
    for (int i = 0; i < count; i++) {
      int key = Math.max(key(left[i] ^ flip, infinity), key(right[i] ^ flip, infinity));
      left[i] = ordered(key) ^ flip;
    }
  }

  private static void maxOfPairs(int[] left, int[] right, int infinity, int flip, int count) {
    for (int i = 0; i < count; i++) {
      int low =
          Math.max(key((left[i] << 16) ^ flip, infinity), key((right[i] << 16) ^ flip, infinity));
      int high =
          Math.max(
              key((left[i] & UPPER) ^ flip, infinity), key((right[i] & UPPER) ^ flip, infinity));
      left[i] = ((ordered(low) ^ flip) >>> 16) | ((ordered(high) ^ flip) & UPPER);
    }
  }

  private static int ordered(int bits) {
    return bits ^ ((bits >> 31) & Integer.MAX_VALUE);
  }

  private static int key(int bits, int infinity) {
    int nan = (infinity - (bits & Integer.MAX_VALUE)) >> 31;
    return (ordered(bits) & ~nan) | (SIGN & nan);
  }

  @Override
  void scale(int[] tile, long factor, int count) {
    throw new UnsupportedOperationException("this kernel supports only maximum and minimum");
  }
}
