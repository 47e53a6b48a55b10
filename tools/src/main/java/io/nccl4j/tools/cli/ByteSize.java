package io.nccl4j.tools.cli;

import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Parses and formats sizes in bytes. On the command line a size is a number as C's scanf reads it,
 * optionally with K, M or G for powers of 1024.
 */
public final class ByteSize {
  private static final Pattern FORM =
      Pattern.compile(
          "\\s*\\+?(?:0[xX](?<hex>(?:H+\\.?H*|\\.H+)(?:[pP][+-]?D+)?)|(?<decimal>(?:D+\\.?D*|\\.D+)(?:[eE][+-]?D+)?))\\s*(?<unit>[KkMmGg]?)(?:i?[Bb])?\\s*"
              .replace("H", "[0-9a-fA-F]")
              .replace("D", "[0-9]"));

  private static final String[] UNITS = {"B", "KiB", "MiB", "GiB", "TiB"};

  private ByteSize() {}

  /**
   * {@return a size in the largest suitable unit, with at most one decimal}
   *
   * @param bytes the size in bytes
   */
  public static String text(long bytes) {
    int unit = 0;
    double value = bytes;
    while (value >= 1024 && unit < UNITS.length - 1) {
      value /= 1024;
      unit++;
    }
    String number =
        value == Math.rint(value)
            ? Long.toString((long) value)
            : String.format(Locale.ROOT, "%.1f", value);
    return number + " " + UNITS[unit];
  }

  /**
   * Returns the size in bytes parsed from a text; fractions of a byte are truncated.
   *
   * @throws IllegalArgumentException if it is not a size
   */
  public static long parse(String text) {
    Matcher matcher = FORM.matcher(text);
    if (!matcher.matches()) {
      throw new IllegalArgumentException(
          "'"
              + text
              + "' is not a size: a number of bytes, optionally with K, M or G (1024-based)");
    }
    double bytes = number(matcher) * unit(matcher.group("unit"));
    if (bytes >= 0x1p62) {
      throw new IllegalArgumentException(
          "'" + text + "' is too large; a size must be below 2^62 bytes");
    }
    return (long) bytes;
  }

  private static double number(Matcher matcher) {
    String hex = matcher.group("hex");
    if (hex == null) {
      return Double.parseDouble(matcher.group("decimal"));
    }
    // Unlike C, Java needs the exponent.
    return Double.parseDouble("0x" + hex + (hex.matches(".*[pP].*") ? "" : "p0"));
  }

  private static long unit(String letter) {
    return switch (letter) {
      case "K", "k" -> 1L << 10;
      case "M", "m" -> 1L << 20;
      case "G", "g" -> 1L << 30;
      default -> 1;
    };
  }
}
