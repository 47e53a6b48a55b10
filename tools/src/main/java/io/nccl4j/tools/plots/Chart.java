package io.nccl4j.tools.plots;

import java.util.List;

/**
 * Curves over common axes. Values that are not finite, and values of 0 or less on a logarithmic
 * axis, are omitted, and so are curves without points.
 *
 * @param title the title
 * @param x the horizontal axis
 * @param y the vertical axis
 * @param curves the curves
 */
public record Chart(String title, Axis x, Axis y, List<Curve> curves) {
  /** Omits points that cannot be drawn. */
  public Chart {
    curves =
        curves.stream()
            .map(
                curve ->
                    new Curve(
                        curve.name(),
                        curve.colour(),
                        curve.line(),
                        curve.marked(),
                        curve.points().stream()
                            .filter(point -> fits(x, point.x()) && fits(y, point.y()))
                            .toList()))
            .filter(curve -> !curve.points().isEmpty())
            .toList();
  }

  private static boolean fits(Axis axis, double value) {
    return Double.isFinite(value) && (value > 0 || !axis.logarithmic());
  }
}
