package io.nccl4j.tools.plots;

import de.erichseifert.vectorgraphics2d.VectorGraphics2D;
import de.erichseifert.vectorgraphics2d.svg.SVGProcessor;
import de.erichseifert.vectorgraphics2d.util.PageSize;
import java.awt.BasicStroke;
import java.awt.Color;
import java.awt.Font;
import java.awt.Graphics2D;
import java.awt.RenderingHints;
import java.awt.Stroke;
import java.awt.geom.Line2D;
import java.awt.geom.Rectangle2D;
import java.awt.image.BufferedImage;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import javax.imageio.ImageIO;
import org.jfree.chart.JFreeChart;
import org.jfree.chart.block.BlockBorder;
import org.jfree.chart.block.RectangleConstraint;
import org.jfree.chart.plot.XYPlot;
import org.jfree.chart.renderer.xy.XYLineAndShapeRenderer;
import org.jfree.chart.text.TextUtils;
import org.jfree.chart.ui.RectangleInsets;
import org.jfree.chart.util.ShapeUtils;
import org.jfree.data.Range;
import org.jfree.data.xy.XYSeries;
import org.jfree.data.xy.XYSeriesCollection;

/**
 * Draws charts below each other, narrow enough for a phone. Only this class and {@link Scales} need
 * the module java.desktop.
 */
final class Drawing {
  private static final int WIDTH = 480;

  /** The height of a chart without its legend. */
  private static final int HEIGHT = 340;

  /** The pixels of a PNG per unit of an SVG, for high-resolution screens. */
  private static final int PNG_SCALE = 2;

  private static final float STROKE = 2;

  /** Half the size of a marker. */
  private static final float MARKER = 3.5f;

  private static final double LEGEND_LINE = 40;

  /** Becomes {@code sans-serif} in an SVG; see {@link #svg}. */
  private static final String FAMILY = Font.DIALOG;

  private static final Font TITLE = new Font(FAMILY, Font.BOLD, 16);
  static final Font TEXT = new Font(FAMILY, Font.PLAIN, 14);
  private static final Stroke GRID_STROKE = new BasicStroke(1);
  private static final Color GRID = new Color(0xdddddd);

  /** Distinguishable for most people with colour blindness. */
  private static final List<Integer> COLOURS =
      List.of(0x0072b2, 0xd55e00, 0x009e73, 0xcc79a7, 0xe69f00, 0x56b4e9, 0x7a5195, 0x666666);

  static {
    // Otherwise rotated text would be drawn as shapes.
    TextUtils.setUseDrawRotatedStringWorkaround(false);
  }

  private final List<JFreeChart> charts;
  private final List<Integer> heights;

  private Drawing(List<Chart> charts) {
    this.charts = charts.stream().map(Drawing::chart).toList();
    this.heights = this.charts.stream().map(Drawing::height).toList();
  }

  /** Returns the contents of a picture file, whose name ends in .svg or .png. */
  static byte[] of(List<Chart> charts, Path file) throws IOException {
    Drawing drawing = new Drawing(charts);
    return file.toString().toLowerCase(Locale.ROOT).endsWith(".svg")
        ? drawing.svg()
        : drawing.png();
  }

  private int height() {
    return heights.stream().mapToInt(Integer::intValue).sum();
  }

  private byte[] svg() throws IOException {
    VectorGraphics2D graphics = new VectorGraphics2D();
    paint(graphics);
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    new SVGProcessor()
        .getDocument(graphics.getCommands(), new PageSize(0, 0, WIDTH, height()))
        .writeTo(out);
    // The processor writes no family for text in the default font. The maximum width scales the
    // charts down on narrow screens.
    return out.toString(StandardCharsets.UTF_8)
        .replaceFirst("<svg ", "<svg style=\"font-family:sans-serif;max-width:100%;height:auto\" ")
        .getBytes(StandardCharsets.UTF_8);
  }

  private byte[] png() throws IOException {
    BufferedImage image =
        new BufferedImage(PNG_SCALE * WIDTH, PNG_SCALE * height(), BufferedImage.TYPE_INT_RGB);
    Graphics2D graphics = image.createGraphics();
    graphics.scale(PNG_SCALE, PNG_SCALE);
    graphics.setRenderingHint(
        RenderingHints.KEY_FRACTIONALMETRICS, RenderingHints.VALUE_FRACTIONALMETRICS_ON);
    paint(graphics);
    graphics.dispose();
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    if (!ImageIO.write(image, "png", out)) {
      throw new IOException("this Java cannot write PNG files");
    }
    return out.toByteArray();
  }

  private void paint(Graphics2D graphics) {
    int top = 0;
    for (int i = 0; i < charts.size(); i++) {
      charts.get(i).draw(graphics, new Rectangle2D.Double(0, top, WIDTH, heights.get(i)));
      top += heights.get(i);
    }
  }

  private static JFreeChart chart(Chart model) {
    XYSeriesCollection data = new XYSeriesCollection();
    XYLineAndShapeRenderer renderer = new XYLineAndShapeRenderer();
    renderer.setDrawSeriesLineAsPath(true);
    renderer.setDrawOutlines(false);
    renderer.setLegendLine(new Line2D.Double(-LEGEND_LINE / 2, 0, LEGEND_LINE / 2, 0));
    for (int i = 0; i < model.curves().size(); i++) {
      data.addSeries(series(i, model.curves().get(i)));
      style(renderer, i, model.curves().get(i));
    }
    XYPlot plot = new XYPlot(data, Scales.of(model.x()), Scales.of(model.y()), renderer);
    plot.setBackgroundPaint(Color.WHITE);
    plot.setOutlineVisible(false);
    plot.setDomainGridlinePaint(GRID);
    plot.setRangeGridlinePaint(GRID);
    plot.setDomainGridlineStroke(GRID_STROKE);
    plot.setRangeGridlineStroke(GRID_STROKE);
    JFreeChart chart = new JFreeChart(model.title(), TITLE, plot, true);
    chart.setBackgroundPaint(Color.WHITE);
    chart.setPadding(new RectangleInsets(8, 4, 8, 28));
    chart.getLegend().setItemFont(TEXT);
    chart.getLegend().setFrame(BlockBorder.NONE);
    chart.getLegend().setItemLabelPadding(new RectangleInsets(2, 4, 2, 12));
    return chart;
  }

  private static int height(JFreeChart chart) {
    BufferedImage image = new BufferedImage(1, 1, BufferedImage.TYPE_INT_RGB);
    Graphics2D graphics = image.createGraphics();
    double legend =
        chart
            .getLegend()
            .arrange(
                graphics,
                new RectangleConstraint(
                    new Range(0, chart.getPadding().trimWidth(WIDTH)),
                    new Range(0, Short.MAX_VALUE)))
            .height;
    graphics.dispose();
    return HEIGHT + (int) Math.ceil(legend);
  }

  /** The key is an index, since curves may have equal names. */
  private static XYSeries series(int key, Curve curve) {
    XYSeries series = new XYSeries(key, false);
    series.setDescription(curve.name());
    curve.points().forEach(point -> series.add(point.x(), point.y()));
    return series;
  }

  private static void style(XYLineAndShapeRenderer renderer, int i, Curve curve) {
    renderer.setSeriesPaint(i, new Color(COLOURS.get(curve.colour() % COLOURS.size())));
    renderer.setSeriesStroke(
        i,
        new BasicStroke(
            STROKE, BasicStroke.CAP_BUTT, BasicStroke.JOIN_ROUND, 10, dashes(curve.line()), 0));
    renderer.setSeriesShape(i, ShapeUtils.createDiamond(MARKER));
    renderer.setSeriesShapesVisible(i, curve.marked());
    renderer.setLegendItemLabelGenerator(
        (data, series) -> ((XYSeriesCollection) data).getSeries(series).getDescription());
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
