package io.nccl4j.internal.reference.transport;

import java.nio.ByteBuffer;

/**
 * The wire format of a slice: a header of 32 bytes (magic number, size, slice number, signature, 8
 * unused bytes), then the data, padded to a multiple of 32 bytes. All fields are in native byte
 * order; a host with another byte order fails the check of the magic number.
 */
public final class TcpFrame {
  static final int HEADER_BYTES = 32;
  static final int MAGIC = 0x4E43_344B;

  private static final int SIZE = 4;
  private static final int NUMBER = 8;
  private static final int SIGNATURE = 16;

  private TcpFrame() {}

  /** Returns the size of the frame of a slice in bytes. */
  public static int size(int bytes) {
    return HEADER_BYTES + (bytes + 31 & -32);
  }

  public static void write(ByteBuffer to, int at, int bytes, long number, long signature) {
    to.putInt(at, MAGIC);
    to.putInt(at + SIZE, bytes);
    to.putLong(at + NUMBER, number);
    to.putLong(at + SIGNATURE, signature);
  }

  static int bytes(ByteBuffer from, int at) {
    return from.getInt(at + SIZE);
  }

  static long signature(ByteBuffer from, int at) {
    return from.getLong(at + SIGNATURE);
  }

  /** Returns what is wrong with a header, or null if it is valid. */
  static String check(ByteBuffer from, int at, long number, int maxBytes) {
    if (from.getInt(at) != MAGIC) {
      return "slice %d has magic 0x%08x; it must be 0x%08x"
          .formatted(number, from.getInt(at), MAGIC);
    }
    if (from.getLong(at + NUMBER) != number) {
      return "it sent slice " + from.getLong(at + NUMBER) + " instead of " + number;
    }
    int bytes = bytes(from, at);
    return bytes < 0 || bytes > maxBytes
        ? "slice " + number + " has " + bytes + " bytes; the maximum is " + maxBytes
        : null;
  }
}
