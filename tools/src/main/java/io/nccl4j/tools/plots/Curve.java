package io.nccl4j.tools.plots;

import java.util.List;

/**
 * A curve of a chart.
 *
 * @param name the name in the legend
 * @param colour the index of its colour, from 0; modulo {@value #COLOURS}
 * @param line the line style
 * @param marked whether each point has a marker, as measured points do
 * @param points the points, from left to right
 */
public record Curve(String name, int colour, Line line, boolean marked, List<Point> points) {
  /** The number of colours. */
  public static final int COLOURS = 8;

  /** A line style. */
  public enum Line {
    /** Solid. */
    SOLID,
    /** Dashes. */
    DASHED,
    /** Dots. */
    DOTTED,
    /** Dashes and dots. */
    MIXED
  }

  /**
   * A point.
   *
   * @param x the horizontal coordinate, in the unit of that axis
   * @param y the vertical coordinate, in the unit of that axis
   * @param low the lower end of the spread of y; y if it is not known
   * @param high the upper end of that spread
   */
  public record Point(double x, double y, double low, double high) {
    /**
     * Creates a point without a spread.
     *
     * @param x the horizontal coordinate
     * @param y the vertical coordinate
     */
    public Point(double x, double y) {
      this(x, y, y, y);
    }
  }

  /** Copies the points. */
  public Curve {
    points = List.copyOf(points);
  }
}
