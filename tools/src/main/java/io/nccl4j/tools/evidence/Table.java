package io.nccl4j.tools.evidence;

import java.util.List;
import java.util.Map;

/**
 * One table of a report.
 *
 * @param title what it shows, with units
 * @param columns the column headings
 * @param rows the rows, each with one cell per column: a string or a number
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

  /** Rounds a number to some decimals, since measurements here are not more precise. */
  static double rounded(double value, int decimals) {
    double scale = Math.pow(10, decimals);
    return Math.round(value * scale) / scale;
  }
}
