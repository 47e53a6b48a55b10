package io.nccl4j.tools.cli;

import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A latency on the command line: a number with ns, us, ms or s, as in {@code 5us}.
 *
 * @param seconds the time in seconds; finite, and 0 or more
 */
public record Latency(double seconds) {
  private static final Pattern FORM =
      Pattern.compile("\\s*(\\d+(?:\\.\\d*)?|\\.\\d+)\\s*(ns|us|\u00b5s|ms|s)\\s*");

  /**
   * Checks the value.
   *
   * @throws IllegalArgumentException if it is negative, or not finite
   */
  public Latency {
    if (!(seconds >= 0) || Double.isInfinite(seconds)) {
      throw new IllegalArgumentException(
          "latency is " + seconds + " seconds; it must be finite, and 0 or more");
    }
  }

  /**
   * {@return the latency parsed from a text}
   *
   * @param text such as {@code 5us}
   * @throws IllegalArgumentException if it is not a latency
   */
  public static Latency parse(String text) {
    Matcher matcher = FORM.matcher(text);
    if (!matcher.matches()) {
      throw new IllegalArgumentException(
          "'" + text + "' is not a latency: a number with ns, us, ms or s");
    }
    return new Latency(Double.parseDouble(matcher.group(1)) * unit(matcher.group(2)));
  }

  private static double unit(String name) {
    return switch (name) {
      case "ns" -> 1e-9;
      case "ms" -> 1e-3;
      case "s" -> 1;
      default -> 1e-6;
    };
  }
}
