package io.nccl4j.examples.simulate;

import de.erichseifert.vectorgraphics2d.VectorGraphics2D;
import de.erichseifert.vectorgraphics2d.svg.SVGProcessor;
import de.erichseifert.vectorgraphics2d.util.PageSize;
import java.awt.BasicStroke;
import java.awt.Color;
import java.awt.Font;
import java.awt.Graphics2D;
import java.awt.image.BufferedImage;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.function.ToDoubleFunction;
import java.util.stream.LongStream;
import javax.imageio.ImageIO;
import org.knowm.xchart.XYChart;
import org.knowm.xchart.XYChartBuilder;
import org.knowm.xchart.XYSeries;
import org.knowm.xchart.style.Styler.LegendPosition;
import org.knowm.xchart.style.XYStyler;
import org.knowm.xchart.style.markers.SeriesMarkers;

/**
 * A scenario as a picture: time and bus bandwidth against size, each algorithm with each protocol,
 * and below, where ranks are swept, both against ranks, each algorithm with its best protocol. A
 * colour is an algorithm, a kind of line a protocol.
 */
final class Plot {
  private static final int WIDTH = 860;
  private static final int HEIGHT = 560;

  /** Sizes of the curves: every power of two of bytes between these. */
  private static final long FIRST_SIZE = 1 << 10;

  private static final long LAST_SIZE = 16L << 30;

  /** The size that ranks are compared at where none is given. */
  private static final long USUAL_SIZE = 64L << 20;

  /** Axes have decimal ticks, and so decimal units. */
  private static final double MEGA = 1e6;

  private final Scenario scenario;

  private Plot(Scenario scenario) {
    this.scenario = scenario;
  }

  /** Draws a scenario into a file whose name ends in .svg or .png. */
  static void write(Scenario scenario, Path file) throws IOException {
    List<XYChart> charts = new Plot(scenario).charts();
    int rows = Math.ceilDiv(charts.size(), 2);
    try (OutputStream out = Files.newOutputStream(file)) {
      if (file.toString().toLowerCase(Locale.ROOT).endsWith(".svg")) {
        writeSvg(charts, rows, out);
      } else {
        writePng(charts, rows, out);
      }
    }
  }

  private static void writeSvg(List<XYChart> charts, int rows, OutputStream out)
      throws IOException {
    VectorGraphics2D graphics = new VectorGraphics2D();
    paint(charts, graphics);
    new SVGProcessor()
        .getDocument(graphics.getCommands(), new PageSize(0, 0, 2 * WIDTH, rows * HEIGHT))
        .writeTo(out);
  }

  private static void writePng(List<XYChart> charts, int rows, OutputStream out)
      throws IOException {
    BufferedImage image = new BufferedImage(2 * WIDTH, rows * HEIGHT, BufferedImage.TYPE_INT_RGB);
    Graphics2D graphics = image.createGraphics();
    paint(charts, graphics);
    graphics.dispose();
    if (!ImageIO.write(image, "png", out)) {
      throw new IOException("this Java writes no PNG");
    }
  }

  private static void paint(List<XYChart> charts, Graphics2D graphics) {
    for (int i = 0; i < charts.size(); i++) {
      int x = i % 2 * WIDTH;
      int y = i / 2 * HEIGHT;
      graphics.translate(x, y);
      charts.get(i).paint(graphics, WIDTH, HEIGHT);
      graphics.translate(-x, -y);
    }
  }

  private List<XYChart> charts() {
    String cluster =
        "%d ranks, %d to a node"
            .formatted(
                scenario.model().cluster().ranks(), scenario.model().cluster().ranksPerNode());
    List<XYChart> charts = new ArrayList<>();
    charts.add(bySize("Time, " + cluster, "time (us)", e -> Text.micros(e.seconds())));
    charts.add(bySize("Bus bandwidth, " + cluster, "busbw (GB/s)", e -> Text.gigas(e.busbw())));
    if (scenario.sweep() != null) {
      long bytes = scenario.size() == null ? USUAL_SIZE : scenario.size();
      String size = Text.bytes(bytes) + ", best protocol";
      charts.add(byRanks("Time, " + size, "time (us)", bytes, e -> Text.micros(e.seconds())));
      charts.add(
          byRanks("Bus bandwidth, " + size, "busbw (GB/s)", bytes, e -> Text.gigas(e.busbw())));
    }
    return charts;
  }

  private XYChart bySize(String title, String axis, ToDoubleFunction<Estimate> value) {
    List<Long> sizes =
        LongStream.iterate(FIRST_SIZE, size -> size <= LAST_SIZE, size -> 2 * size)
            .boxed()
            .toList();
    XYChart chart = chart(title, "size of each rank's data (MB)", axis);
    Model model = scenario.model();
    for (Estimate first : model.estimates(FIRST_SIZE)) {
      XYSeries series =
          chart.addSeries(
              first.algorithm().label() + " " + TextReport.protocol(first),
              sizes.stream().mapToDouble(bytes -> bytes / MEGA).toArray(),
              sizes.stream()
                  .map(bytes -> model.estimate(first.algorithm(), first.protocol(), bytes))
                  .mapToDouble(value)
                  .toArray());
      style(series, first.algorithm(), stroke(first));
    }
    return chart;
  }

  private XYChart byRanks(String title, String axis, long bytes, ToDoubleFunction<Estimate> value) {
    XYChart chart = chart(title, "ranks", axis);
    for (Algorithm algorithm : Algorithm.values()) {
      List<Estimate> estimates =
          scenario.sweep().models().stream()
              .filter(model -> model.algorithms().contains(algorithm))
              .map(model -> model.best(algorithm, bytes))
              .toList();
      if (!estimates.isEmpty()) {
        XYSeries series =
            chart.addSeries(
                algorithm.label(),
                estimates.stream().mapToDouble(Estimate::ranks).toArray(),
                estimates.stream().mapToDouble(value).toArray());
        style(series, algorithm, new BasicStroke(2.5f));
      }
    }
    return chart;
  }

  private static XYChart chart(String title, String xAxis, String yAxis) {
    XYChart chart =
        new XYChartBuilder()
            .width(WIDTH)
            .height(HEIGHT)
            .title(title)
            .xAxisTitle(xAxis)
            .yAxisTitle(yAxis)
            .build();
    XYStyler styler = chart.getStyler();
    styler.setXAxisLogarithmic(true).setYAxisLogarithmic(true);
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
    return chart;
  }

  private static void style(XYSeries series, Algorithm algorithm, BasicStroke stroke) {
    series.setMarker(SeriesMarkers.NONE);
    series.setLineColor(
        // Told apart by most people who see colours otherwise.
        switch (algorithm) {
          case RING -> new Color(0x0072b2);
          case TREE -> new Color(0xd55e00);
          case HIERARCHICAL -> new Color(0x009e73);
        });
    series.setLineStyle(stroke);
  }

  private static BasicStroke stroke(Estimate estimate) {
    float[] dashes =
        switch (estimate.protocol()) {
          case SIMPLE -> null;
          case LL128 -> new float[] {9, 5};
          case LL -> new float[] {2, 4};
        };
    return new BasicStroke(2, BasicStroke.CAP_BUTT, BasicStroke.JOIN_ROUND, 10, dashes, 0);
  }
}
