package io.nccl4j.internal.reference.transport;

import java.nio.ByteBuffer;

/**
 * How a slice travels over a connection: a header of 32 bytes (magic number, size, number of the
 * slice, signature, and 8 bytes of nothing), then the data, filled up to a multiple of 32. All of
 * it is in the byte order of the hosts; one with another order fails at the magic number.
 */
public final class TcpFrame {
  static final int HEADER_BYTES = 32;
  static final int MAGIC = 0x4E43_344B;

  private static final int SIZE = 4;
  private static final int NUMBER = 8;
  private static final int SIGNATURE = 16;

  private TcpFrame() {}

  /** Returns how many bytes a slice takes on the way. */
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

  /** Says what is wrong with a header; null is nothing. */
  static String check(ByteBuffer from, int at, long number, int mostBytes) {
    if (from.getInt(at) != MAGIC) {
      return "slice %d has magic 0x%08x; it must be 0x%08x"
          .formatted(number, from.getInt(at), MAGIC);
    }
    if (from.getLong(at + NUMBER) != number) {
      return "it sent slice " + from.getLong(at + NUMBER) + " where " + number + " is due";
    }
    int bytes = bytes(from, at);
    return bytes < 0 || bytes > mostBytes
        ? "slice " + number + " has " + bytes + " bytes; the most is " + mostBytes
        : null;
  }
}
