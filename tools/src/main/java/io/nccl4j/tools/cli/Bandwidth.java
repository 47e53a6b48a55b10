package io.nccl4j.tools.cli;

import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A bandwidth on the command line: a number, optionally K, M, G or T for powers of 1000, and B/s
 * for bytes or b/s for bits per second, as in {@code 450GB/s} and {@code 400Gb/s}.
 *
 * @param bytesPerSecond the bytes per second; positive and finite
 */
public record Bandwidth(double bytesPerSecond) {
  private static final Pattern FORM =
      Pattern.compile("\\s*(\\d+(?:\\.\\d*)?|\\.\\d+)\\s*([KkMGT]?)(B|b|bit)(?:/s|ps)\\s*");
  private static final String PREFIXES = "KMGT";
  private static final double BITS_PER_BYTE = 8;

  /**
   * Checks the value.
   *
   * @throws IllegalArgumentException if it is not positive and finite
   */
  public Bandwidth {
    if (!(bytesPerSecond > 0) || Double.isInfinite(bytesPerSecond)) {
      throw new IllegalArgumentException(
          "bandwidth is " + bytesPerSecond + " bytes per second; it must be positive and finite");
    }
  }

  /**
   * {@return the bandwidth parsed from a text}
   *
   * @param text such as {@code 450GB/s}
   * @throws IllegalArgumentException if it is not a bandwidth, or 0
   */
  public static Bandwidth parse(String text) {
    Matcher matcher = FORM.matcher(text);
    if (!matcher.matches()) {
      throw new IllegalArgumentException(
          "'%s' is not a bandwidth: a number with B/s, KB/s, MB/s, GB/s or TB/s (1000-based), or b/s, Kb/s and so on for bits"
              .formatted(text));
    }
    double value = Double.parseDouble(matcher.group(1)) * unit(matcher.group(2));
    if (value == 0) {
      throw new IllegalArgumentException("'" + text + "' is 0; a bandwidth must be positive");
    }
    return new Bandwidth(matcher.group(3).equals("B") ? value : value / BITS_PER_BYTE);
  }

  private static double unit(String prefix) {
    return prefix.isEmpty()
        ? 1
        : Math.pow(1000, 1 + PREFIXES.indexOf(prefix.toUpperCase(Locale.ROOT)));
  }
}
