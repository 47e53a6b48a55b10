package io.nccl4j.tools.perf;

import java.math.BigDecimal;
import java.math.MathContext;
import java.math.RoundingMode;
import java.util.Locale;

/** Formats numbers like the C library's printf. */
final class Text {
  private Text() {}

  /** Formats like {@code %g}: six significant digits, without trailing zeros. */
  static String general(double value) {
    if (value == 0 || Double.isNaN(value) || Double.isInfinite(value)) {
      return fixed(value, 0);
    }
    BigDecimal rounded = new BigDecimal(value).round(new MathContext(6, RoundingMode.HALF_EVEN));
    int exponent = rounded.precision() - rounded.scale() - 1;
    if (exponent >= -4 && exponent < 6) {
      return rounded.stripTrailingZeros().toPlainString();
    }
    BigDecimal digits = rounded.scaleByPowerOfTen(-exponent).stripTrailingZeros();
    return "%se%c%02d"
        .formatted(digits.toPlainString(), exponent < 0 ? '-' : '+', Math.abs(exponent));
  }

  /** Right-aligns a number in a column, with up to two decimals as the width allows. */
  static String column(double value, int width) {
    for (int decimals = 2; decimals >= 0; decimals--) {
      String text = fixed(value, decimals);
      if (text.length() <= width) {
        return " ".repeat(width - text.length()) + text;
      }
    }
    return "%*.*e".replace("*.*", width + "." + (width >= 7 ? 1 : 0)).formatted(value);
  }

  private static String fixed(double value, int decimals) {
    if (Double.isNaN(value)) {
      return "nan";
    }
    if (Double.isInfinite(value)) {
      return value > 0 ? "inf" : "-inf";
    }
    return String.format(Locale.ROOT, "%." + decimals + "f", value);
  }
}
