package io.nccl4j.tools.plots;

import java.util.List;

/**
 * One line of a chart.
 *
 * @param name what the legend calls it
 * @param colour which of the {@value #COLOURS} colours it has, from 0; beyond, they come again
 * @param line what kind of line
 * @param marked whether each point is marked, as measured ones are
 * @param points the points, from left to right
 */
public record Curve(String name, int colour, Line line, boolean marked, List<Point> points) {
  /** How many colours there are. */
  public static final int COLOURS = 8;

  /** A kind of line. */
  public enum Line {
    /** Whole. */
    SOLID,
    /** Of dashes. */
    DASHED,
    /** Of dots. */
    DOTTED,
    /** Of dashes and dots. */
    MIXED
  }

  /**
   * One point.
   *
   * @param x where it is, in the unit of the horizontal axis
   * @param y how high, in the unit of the vertical axis
   */
  public record Point(double x, double y) {}

  /** Copies the points. */
  public Curve {
    points = List.copyOf(points);
  }
}
