package io.nccl4j.tools.evidence;

import java.util.List;
import java.util.Map;

/**
 * One table of a report.
 *
 * @param title what it shows, with units
 * @param columns the heads of the columns
 * @param rows one cell for each column: a text, or a number
 */
record Table(String title, List<String> columns, List<List<Object>> rows) {
  Map<String, Object> tree() {
    return Map.of("title", title, "columns", columns, "rows", rows);
  }

  @SuppressWarnings("unchecked") // The other side of tree().
  static Table of(Map<String, Object> tree) {
    return new Table(
        (String) tree.get("title"),
        (List<String>) tree.get("columns"),
        (List<List<Object>>) tree.get("rows"));
  }

  /** Returns a number with so many decimals, since no measurement here has more to say. */
  static double rounded(double value, int decimals) {
    double scale = Math.pow(10, decimals);
    return Math.round(value * scale) / scale;
  }
}
