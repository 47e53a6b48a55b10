package io.nccl4j.reference;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/** Signed and unsigned 8-bit integers. */
final class Int8Kernel extends Kernel<byte[]> {
  private final boolean unsigned;

  Int8Kernel(boolean unsigned) {
    super(1, new byte[TILE_BYTES / 1], new byte[TILE_BYTES / 1]);
    this.unsigned = unsigned;
  }

  @Override
  void load(MemorySegment from, long offset, byte[] tile, int count) {
    MemorySegment.copy(from, ValueLayout.JAVA_BYTE, offset, tile, 0, count);
  }

  @Override
  void store(byte[] tile, MemorySegment to, long offset, int count) {
    MemorySegment.copy(tile, 0, to, ValueLayout.JAVA_BYTE, offset, count);
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
  void max(byte[] left, byte[] right, int count) {
    byte flip = flip();
    for (int i = 0; i < count; i++) {
      left[i] = (byte) (Math.max(left[i] ^ flip, right[i] ^ flip) ^ flip);
    }
  }

  @Override
  void min(byte[] left, byte[] right, int count) {
    byte flip = flip();
    for (int i = 0; i < count; i++) {
      left[i] = (byte) (Math.min(left[i] ^ flip, right[i] ^ flip) ^ flip);
    }
  }

  /** Returns what turns the order of this type into that of signed integers, and back. */
  private byte flip() {
    return unsigned ? Byte.MIN_VALUE : 0;
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
    for (int i = 0; i < count; i++) {
      int value = unsigned ? tile[i] & 0xFF : tile[i];
      tile[i] = (byte) (value / divisor);
    }
  }
}
