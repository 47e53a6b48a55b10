package io.nccl4j.tools.doctor;

import java.util.Locale;

/** Formats byte counts. */
final class Bytes {
  static final long MIB = 1L << 20;
  static final long GIB = 1L << 30;

  private Bytes() {}

  static String text(long bytes) {
    if (bytes >= GIB) {
      return String.format(Locale.ROOT, "%.1f GiB", (double) bytes / GIB);
    }
    return bytes >= MIB ? bytes / MIB + " MiB" : bytes / 1024 + " KiB";
  }
}
