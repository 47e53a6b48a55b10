package io.nccl4j.tools.perf.report;

import java.util.Locale;

/** Formats numbers for reports. */
public final class Texts {
  private Texts() {}

  /**
   * {@return a number with 0 to 2 decimals, fewer for larger numbers}
   *
   * @param value the number
   */
  public static String number(double value) {
    double size = Math.abs(value);
    int decimals = size >= 1000 ? 0 : size >= 100 ? 1 : 2;
    return String.format(Locale.ROOT, "%,." + decimals + "f", value);
  }

  /**
   * {@return a ratio with two decimals}
   *
   * @param value the ratio
   */
  public static String ratio(double value) {
    return String.format(Locale.ROOT, "%.2f", value);
  }
}
