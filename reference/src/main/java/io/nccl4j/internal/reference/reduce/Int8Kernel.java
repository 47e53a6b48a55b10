package io.nccl4j.internal.reference.reduce;

import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;

/** Signed and unsigned 8-bit integers. */
final class Int8Kernel extends ArrayKernel<byte[]> {
  /** The top bit of each byte of a word. */
  private static final long TOPS = 0x8080808080808080L;

  /** The lowest bit of each byte of a word. */
  private static final long ONES = 0x0101010101010101L;

  private static final VarHandle WORD =
      MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.nativeOrder());

  private final boolean unsigned;
  private final byte[] quotients = new byte[256];
  private int quotientsOf;
  private final LongTile lefts = new LongTile();
  private final LongTile rights = new LongTile();

  Int8Kernel(boolean unsigned) {
    super(1, new byte[TILE_BYTES / 1], new byte[TILE_BYTES / 1], MemorySegment::ofArray);
    this.unsigned = unsigned;
  }

  /** A vector has so many bytes that the scalar iterations before and after the loop matter. */
  @Override
  boolean slow(boolean scales) {
    return true;
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
    MemorySegment.copy(left.view(), 0, lefts.view(), 0, count);
    MemorySegment.copy(right.view(), 0, rights.view(), 0, count);
    // With their top bits flipped, signed numbers order like unsigned ones.
    long flip = unsigned ? 0 : TOPS;
    int words = (count + 7) / 8;
    if (larger) {
      max(lefts.array(), rights.array(), flip, words);
    } else {
      min(lefts.array(), rights.array(), flip, words);
    }
    MemorySegment.copy(lefts.view(), 0, left.view(), 0, count);
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
    if (Integer.bitCount(divisor) == 1 && divisor <= 128) {
      shift(tile, Integer.numberOfTrailingZeros(divisor), count);
      return;
    }
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

  /** Divides by a power of two, truncating, eight bytes at a time. */
  private void shift(byte[] tile, int power, int count) {
    long below = ONES * ((1 << power) - 1);
    long high = ~(ONES * (0xFF >>> power));
    // The array length is a multiple of a word, and the bytes after the last element are unused.
    for (int i = 0; i < count; i += Long.BYTES) {
      long word = (long) WORD.get(tile, i);
      if (unsigned) {
        WORD.set(tile, i, (word >>> power) & ~high);
      } else {
        long rounding = negative(word) & below;
        // Added byte by byte: a carry does not propagate to the next byte.
        long up = ((word & ~TOPS) + rounding) ^ (word & TOPS);
        WORD.set(tile, i, ((up >>> power) & ~high) | (negative(up) & high));
      }
    }
  }

  /** Returns all ones in each byte whose top bit is set. */
  private static long negative(long word) {
    long tops = word & TOPS;
    return (tops << 1) - (tops >>> 7);
  }
}
