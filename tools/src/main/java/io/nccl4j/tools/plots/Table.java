package io.nccl4j.tools.plots;

import java.util.List;

/**
 * A table of a page. Its first column names the rows.
 *
 * @param title the title
 * @param about an explanation, or an empty string
 * @param columns the column headings
 * @param rows the rows, each with as many cells as there are columns
 */
public record Table(String title, String about, List<String> columns, List<List<Cell>> rows) {
  /** The style of a cell. */
  public enum Kind {
    /** A number or a name. */
    PLAIN,
    /** Text, which may wrap. */
    TEXT,
    /** The best value of its row. */
    BEST,
    /** A missing value. */
    MISSING,
    /** A wrong value. */
    WRONG
  }

  /**
   * A cell.
   *
   * @param text the text
   * @param kind the style
   */
  public record Cell(String text, Kind kind) {
    /**
     * {@return a cell with a number or a name}
     *
     * @param text the number or name
     */
    public static Cell of(String text) {
      return new Cell(text, Kind.PLAIN);
    }

    /**
     * {@return a cell with text that may wrap}
     *
     * @param text the text
     */
    public static Cell text(String text) {
      return new Cell(text, Kind.TEXT);
    }
  }

  /** Copies the rows. */
  public Table {
    columns = List.copyOf(columns);
    rows = rows.stream().map(List::copyOf).toList();
    for (List<Cell> row : rows) {
      if (row.size() != columns.size()) {
        throw new IllegalArgumentException(
            "a row of '%s' has %d cells, but there are %d columns"
                .formatted(title, row.size(), columns.size()));
      }
    }
  }
}
