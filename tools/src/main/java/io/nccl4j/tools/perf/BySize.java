package io.nccl4j.tools.perf;

import io.nccl4j.tools.cli.ByteSize;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.stream.Collectors;

/**
 * A value for all sizes, such as {@code ring}, or values for ranges of sizes, such as {@code
 * tree:..64K,ring:64K..}. Ranges include both ends; the first that has a size counts.
 *
 * @param text the text of the command line, in lower case
 * @param ranges the ranges
 */
record BySize<E extends Enum<E>>(String text, List<Range<E>> ranges) {
  /** A value, and the sizes for which it is, in bytes. */
  record Range<E>(E value, long from, long to) {}

  /**
   * Parses an option's value.
   *
   * @throws IllegalArgumentException if it is invalid; the message quotes it and gives the rule
   */
  static <E extends Enum<E>> BySize<E> parse(Class<E> type, String text) {
    List<Range<E>> ranges = new ArrayList<>();
    for (String part : text.split(",", -1)) {
      int colon = part.indexOf(':');
      E value = named(type, colon < 0 ? part : part.substring(0, colon));
      ranges.add(
          colon < 0
              ? new Range<>(value, 0, Long.MAX_VALUE)
              : range(value, part.substring(colon + 1)));
    }
    return new BySize<>(text.toLowerCase(Locale.ROOT), List.copyOf(ranges));
  }

  private static <E extends Enum<E>> E named(Class<E> type, String text) {
    E[] values = type.getEnumConstants();
    return Arrays.stream(values)
        .filter(value -> value.name().equalsIgnoreCase(text))
        .findFirst()
        .orElseThrow(
            () ->
                new IllegalArgumentException(
                    "'%s' is not one of %s"
                        .formatted(
                            text,
                            Arrays.stream(values)
                                .map(value -> value.name().toLowerCase(Locale.ROOT))
                                .collect(Collectors.joining(", ")))));
  }

  private static <E> Range<E> range(E value, String text) {
    int dots = text.indexOf("..");
    if (dots < 0) {
      throw new IllegalArgumentException(
          "'" + text + "' is not a range of sizes, such as ..64K, 1K..64K or 64K..");
    }
    String from = text.substring(0, dots);
    String to = text.substring(dots + 2);
    Range<E> range =
        new Range<>(
            value,
            from.isEmpty() ? 0 : ByteSize.parse(from),
            to.isEmpty() ? Long.MAX_VALUE : ByteSize.parse(to));
    if (range.from > range.to) {
      throw new IllegalArgumentException("'" + text + "' is a range that begins after its end");
    }
    return range;
  }

  /** Returns the value for a size, or {@code otherwise} if no range has it. */
  E at(long bytes, E otherwise) {
    return ranges.stream()
        .filter(range -> range.from <= bytes && bytes <= range.to)
        .map(Range::value)
        .findFirst()
        .orElse(otherwise);
  }
}
