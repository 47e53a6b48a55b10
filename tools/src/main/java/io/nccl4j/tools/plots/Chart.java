package io.nccl4j.tools.plots;

import io.nccl4j.tools.cli.JsonTree;
import io.nccl4j.tools.cli.Template;
import io.nccl4j.tools.plots.Curve.Point;
import java.io.IOException;
import java.util.List;
import java.util.Locale;

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
                            .map(
                                point ->
                                    fits(y, point.low()) && fits(y, point.high())
                                        ? point
                                        : new Point(point.x(), point.y()))
                            .toList()))
            .filter(curve -> !curve.points().isEmpty())
            .toList();
  }

  private static boolean fits(Axis axis, double value) {
    return Double.isFinite(value) && (value > 0 || !axis.logarithmic());
  }

  /**
   * {@return charts as the drawing of a page, without those that have no curves; a script draws
   * them for the available width}
   *
   * @param charts the charts
   * @throws IOException if this program's resources are incomplete
   */
  public static String drawing(List<Chart> charts) throws IOException {
    return Template.read(
        Chart.class,
        "charts.html",
        charts.stream().filter(chart -> !chart.curves.isEmpty()).map(Chart::json).toList());
  }

  private static String name(Enum<?> value) {
    return value.name().toLowerCase(Locale.ROOT);
  }

  private static Object json(Chart chart) {
    return JsonTree.object(
        "title", chart.title(),
        "x", json(chart.x()),
        "y", json(chart.y()),
        "curves", chart.curves().stream().map(Chart::json).toList());
  }

  private static Object json(Axis axis) {
    return JsonTree.object("label", axis.label(), "scale", name(axis.scale()));
  }

  private static Object json(Curve curve) {
    return JsonTree.object(
        "name", curve.name(),
        "colour", curve.colour() % Curve.COLOURS,
        "line", name(curve.line()),
        "marked", curve.marked(),
        "points", curve.points().stream().map(Chart::json).toList());
  }

  private static Object json(Point point) {
    return point.low() == point.high()
        ? List.of(point.x(), point.y())
        : List.of(point.x(), point.y(), point.low(), point.high());
  }
}
