package io.nccl4j.reference;

import java.lang.foreign.MemorySegment;

/** Signed and unsigned 8-bit integers. */
final class Int8Kernel extends ArrayKernel<byte[]> {
  /** The top bit of each byte of a word. */
  private static final long TOPS = 0x8080808080808080L;

  private final boolean unsigned;
  private final byte[] quotients = new byte[256];
  private int quotientsOf;
  private final Words lefts = new Words();
  private final Words rights = new Words();

  Int8Kernel(boolean unsigned) {
    super(1, new byte[TILE_BYTES / 1], new byte[TILE_BYTES / 1], MemorySegment::ofArray, TILE_BYTES);
    this.unsigned = unsigned;
  }

  @Override
  void sum(byte[] left, byte[] right, int count) {
    for (int i = 0; i < count; i++) {
      left[i] = (byte) (left[i] + right[i]);
    }
  }

  @Override
  void prod(byte[] left, byte[] right, int count) {
    for (int i = 0; i < count; i++) {
      left[i] = (byte) (left[i] * right[i]);
    }
  }

  @Override
  void max(Tile<byte[]> left, Tile<byte[]> right, int count) {
    pick(left, right, count, true);
  }

  @Override
  void min(Tile<byte[]> left, Tile<byte[]> right, int count) {
    pick(left, right, count, false);
  }

  /** Compares eight bytes at a time, since the compiler vectorizes no comparison of bytes. */
  private void pick(Tile<byte[]> left, Tile<byte[]> right, int count, boolean larger) {
    lefts.view().copyFrom(left.view());
    rights.view().copyFrom(right.view());
    // Signed numbers order like unsigned ones once their top bits are flipped.
    long flip = unsigned ? 0 : TOPS;
    int words = (count + 7) / 8;
    if (larger) {
      max(lefts.array(), rights.array(), flip, words);
    } else {
      min(lefts.array(), rights.array(), flip, words);
    }
    left.view().copyFrom(lefts.view());
  }

  private static void max(long[] left, long[] right, long flip, int words) {
    for (int i = 0; i < words; i++) {
      long x = left[i] ^ flip;
      long y = right[i] ^ flip;
      long notLess = ((x & ~y) | (~(x ^ y) & ((x | TOPS) - (y & ~TOPS)))) & TOPS;
      long mask = (notLess << 1) - (notLess >>> 7);
      left[i] = ((x & mask) | (y & ~mask)) ^ flip;
    }
  }

  private static void min(long[] left, long[] right, long flip, int words) {
    for (int i = 0; i < words; i++) {
      long x = left[i] ^ flip;
      long y = right[i] ^ flip;
      long notLess = ((x & ~y) | (~(x ^ y) & ((x | TOPS) - (y & ~TOPS)))) & TOPS;
      long mask = (notLess << 1) - (notLess >>> 7);
      left[i] = ((y & mask) | (x & ~mask)) ^ flip;
    }
  }

  @Override
  void scale(byte[] tile, long factor, int count) {
    byte by = (byte) factor;
    for (int i = 0; i < count; i++) {
      tile[i] = (byte) (tile[i] * by);
    }
  }

  @Override
  void divide(byte[] tile, int divisor, int count) {
    if (divisor != quotientsOf) {
      for (int value = 0; value < quotients.length; value++) {
        quotients[value] = (byte) ((unsigned ? value : (byte) value) / divisor);
      }
      quotientsOf = divisor;
    }
    for (int i = 0; i < count; i++) {
      tile[i] = quotients[tile[i] & 0xFF];
    }
  }
}
