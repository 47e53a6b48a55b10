package io.nccl4j.examples.plots;

import de.erichseifert.vectorgraphics2d.VectorGraphics2D;
import de.erichseifert.vectorgraphics2d.svg.SVGProcessor;
import de.erichseifert.vectorgraphics2d.util.PageSize;
import java.awt.BasicStroke;
import java.awt.Color;
import java.awt.Font;
import java.awt.Graphics2D;
import java.awt.image.BufferedImage;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import javax.imageio.ImageIO;
import org.knowm.xchart.XYChart;
import org.knowm.xchart.XYChartBuilder;
import org.knowm.xchart.XYSeries;
import org.knowm.xchart.style.Styler.LegendPosition;
import org.knowm.xchart.style.XYStyler;
import org.knowm.xchart.style.markers.SeriesMarkers;

/** Charts drawn on one canvas, two beside each other. All that needs java.desktop is here. */
final class Drawing {
  private static final int WIDTH = 860;
  private static final int HEIGHT = 560;
  private static final int COLUMNS = 2;

  /** What a line of the legend takes, and what is above and below all of them. */
  private static final int LEGEND_LINE = 22;

  private static final int LEGEND_REST = 60;
  private static final float STROKE = 2;

  /** Told apart by most people who see colours otherwise. */
  private static final List<Integer> COLOURS =
      List.of(0x0072b2, 0xd55e00, 0x009e73, 0xcc79a7, 0xe69f00, 0x56b4e9, 0x7a5195, 0x666666);

  private final List<XYChart> charts;
  private final int chartHeight;

  private Drawing(List<Chart> charts) {
    this.charts = charts.stream().map(Drawing::chart).toList();
    int lines = charts.stream().mapToInt(chart -> chart.curves().size()).max().orElse(0);
    this.chartHeight = Math.max(HEIGHT, LEGEND_REST + LEGEND_LINE * lines);
  }

  /** Returns the bytes of a file of this name, which ends in .svg or .png. */
  static byte[] of(List<Chart> charts, Path file) throws IOException {
    return new Drawing(charts).bytes(file);
  }

  private byte[] bytes(Path file) throws IOException {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    if (file.toString().toLowerCase(Locale.ROOT).endsWith(".svg")) {
      writeSvg(out);
    } else {
      writePng(out);
    }
    return out.toByteArray();
  }

  private int width() {
    return Math.min(charts.size(), COLUMNS) * WIDTH;
  }

  private int height() {
    return Math.ceilDiv(charts.size(), COLUMNS) * chartHeight;
  }

  private void writeSvg(OutputStream out) throws IOException {
    VectorGraphics2D graphics = new VectorGraphics2D();
    paint(graphics);
    new SVGProcessor()
        .getDocument(graphics.getCommands(), new PageSize(0, 0, width(), height()))
        .writeTo(out);
  }

  private void writePng(OutputStream out) throws IOException {
    BufferedImage image = new BufferedImage(width(), height(), BufferedImage.TYPE_INT_RGB);
    Graphics2D graphics = image.createGraphics();
    graphics.setColor(Color.WHITE);
    graphics.fillRect(0, 0, width(), height());
    paint(graphics);
    graphics.dispose();
    if (!ImageIO.write(image, "png", out)) {
      throw new IOException("this Java writes no PNG");
    }
  }

  private void paint(Graphics2D graphics) {
    for (int i = 0; i < charts.size(); i++) {
      int x = i % COLUMNS * WIDTH;
      int y = i / COLUMNS * chartHeight;
      graphics.translate(x, y);
      charts.get(i).paint(graphics, WIDTH, chartHeight);
      graphics.translate(-x, -y);
    }
  }

  private static XYChart chart(Chart model) {
    XYChart chart =
        new XYChartBuilder()
            .width(WIDTH)
            .height(HEIGHT)
            .title(model.title())
            .xAxisTitle(label(model.x()))
            .yAxisTitle(label(model.y()))
            .build();
    style(chart.getStyler());
    chart.getStyler().setXAxisLogarithmic(model.x().logarithmic());
    chart.getStyler().setYAxisLogarithmic(model.y().logarithmic());
    if (!model.y().logarithmic()) {
      chart.getStyler().setYAxisMin(lowest(model));
    }
    for (Curve curve : model.curves()) {
      style(
          chart.addSeries(
              curve.name(),
              curve.points().stream().mapToDouble(Curve.Point::x).toArray(),
              curve.points().stream().mapToDouble(Curve.Point::y).toArray()),
          curve);
    }
    return chart;
  }

  /** Ticks are bare numbers here. */
  private static String label(Axis axis) {
    return axis.scale() == Axis.Scale.BYTES ? axis.label() + " (bytes)" : axis.label();
  }

  /** Returns where a linear axis begins: at 0, or below where something is. */
  private static double lowest(Chart model) {
    return model.curves().stream()
        .flatMap(curve -> curve.points().stream())
        .mapToDouble(Curve.Point::y)
        .reduce(0, Math::min);
  }

  private static void style(XYStyler styler) {
    // With a function for labels XChart would place its ticks as on a linear axis.
    styler.setDecimalPattern("#,##0.######");
    styler.setLocale(Locale.ROOT);
    styler.setChartBackgroundColor(Color.WHITE);
    styler.setPlotGridLinesColor(new Color(0xdddddd));
    styler.setChartTitleFont(new Font(Font.SANS_SERIF, Font.BOLD, 16));
    styler.setAxisTitleFont(new Font(Font.SANS_SERIF, Font.PLAIN, 14));
    styler.setAxisTickLabelsFont(new Font(Font.SANS_SERIF, Font.PLAIN, 12));
    styler.setLegendFont(new Font(Font.SANS_SERIF, Font.PLAIN, 12));
    styler.setChartTitleBoxVisible(false);
    styler.setLegendBorderColor(Color.WHITE);
    styler.setLegendPosition(LegendPosition.OutsideE);
    styler.setLegendSeriesLineLength(44);
    styler.setMarkerSize(6);
  }

  private static void style(XYSeries series, Curve curve) {
    Color colour = new Color(COLOURS.get(curve.colour() % COLOURS.size()));
    series.setMarker(curve.marked() ? SeriesMarkers.CIRCLE : SeriesMarkers.NONE);
    series.setMarkerColor(colour);
    series.setLineColor(colour);
    series.setLineStyle(
        new BasicStroke(
            STROKE, BasicStroke.CAP_BUTT, BasicStroke.JOIN_ROUND, 10, dashes(curve.line()), 0));
  }

  private static float[] dashes(Curve.Line line) {
    return switch (line) {
      case SOLID -> null;
      case DASHED -> new float[] {9, 5};
      case DOTTED -> new float[] {2, 4};
      case MIXED -> new float[] {9, 4, 2, 4};
    };
  }
}
