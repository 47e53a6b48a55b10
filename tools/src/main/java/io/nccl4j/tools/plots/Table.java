package io.nccl4j.tools.plots;

import java.util.List;

/**
 * A table of a page. Its first column names the rows.
 *
 * @param title what it is of
 * @param about what a reader has to know of it, or an empty text
 * @param columns the heads of the columns
 * @param rows the rows, each with as many cells as there are columns
 */
public record Table(String title, String about, List<String> columns, List<List<Cell>> rows) {
  /** What is particular about a cell. */
  public enum Kind {
    /** Nothing. */
    PLAIN,
    /** It is text, which may be broken into lines. */
    TEXT,
    /** It is the best of its row. */
    BEST,
    /** There is no such thing. */
    MISSING,
    /** It is not as it should be. */
    WRONG
  }

  /**
   * One cell.
   *
   * @param text what stands in it
   * @param kind what is particular about it
   */
  public record Cell(String text, Kind kind) {
    /**
     * {@return a cell with a number or a name}
     *
     * @param text what stands in it
     */
    public static Cell of(String text) {
      return new Cell(text, Kind.PLAIN);
    }

    /**
     * {@return a cell with text that may be broken into lines}
     *
     * @param text what stands in it
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
            "a row of '%s' has %d cells, and there are %d columns"
                .formatted(title, row.size(), columns.size()));
      }
    }
  }
}
