package io.nccl4j.tools.cli;

import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A short time as the command line gives it: a number with ns, us, ms or s, as in {@code 5us}.
 *
 * @param seconds the time in seconds; 0 or more
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
          "a latency of " + seconds + " seconds is not 0 or more and finite");
    }
  }

  /**
   * {@return the latency that a text stands for}
   *
   * @param text such as {@code 5us}
   * @throws IllegalArgumentException if it is no latency
   */
  public static Latency parse(String text) {
    Matcher matcher = FORM.matcher(text);
    if (!matcher.matches()) {
      throw new IllegalArgumentException(
          "'" + text + "' is no latency; a latency is a number with ns, us, ms or s");
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
