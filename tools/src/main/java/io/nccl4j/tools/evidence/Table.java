package io.nccl4j.tools.evidence;

import io.nccl4j.DataType;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/**
 * One table of a report.
 *
 * @param title what it shows, with units
 * @param columns the column headings
 * @param rows the rows, each with one cell per column: a string or a number
 */
record Table(String title, List<String> columns, List<List<Object>> rows) {
  /** Returns a table with a column for each data type; a missing result was left out. */
  static Table ofTypes(String title, Map<String, ? extends Map<DataType, ?>> results) {
    List<String> columns = new ArrayList<>(List.of(""));
    for (DataType type : DataType.values()) {
      columns.add(type.name().toLowerCase(Locale.ROOT));
    }
    List<List<Object>> rows = new ArrayList<>();
    results.forEach(
        (label, types) -> {
          List<Object> row = new ArrayList<>(List.of(label));
          for (DataType type : DataType.values()) {
            row.add(types.containsKey(type) ? types.get(type).toString() : "left out");
          }
          rows.add(row);
        });
    return new Table(title, columns, rows);
  }

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
