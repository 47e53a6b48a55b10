package io.nccl4j.tools.simulate;

import io.nccl4j.tools.cli.ByteSize;
import java.util.Locale;

/** Formats numbers with units. */
final class Text {
  private static final double MICRO = 1e6;
  private static final double GIGA = 1e9;

  private Text() {}

  static String bytes(long bytes) {
    return ByteSize.text(bytes);
  }

  static String seconds(double seconds) {
    if (seconds >= 1) {
      return String.format(Locale.ROOT, "%.3g s", seconds);
    }
    return seconds >= 1e-3
        ? String.format(Locale.ROOT, "%.3g ms", seconds * 1e3)
        : String.format(Locale.ROOT, "%.3g us", micros(seconds));
  }

  static double micros(double seconds) {
    return seconds * MICRO;
  }

  static double gigas(double perSecond) {
    return perSecond / GIGA;
  }

  static String bandwidth(double bytesPerSecond) {
    return String.format(Locale.ROOT, "%.4g GB/s", gigas(bytesPerSecond))
        .replaceFirst("\\.?0+ ", " ");
  }
}
