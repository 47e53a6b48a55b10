package io.nccl4j.tools.plots;

import io.nccl4j.tools.cli.ByteSize;
import java.awt.FontMetrics;
import java.awt.Graphics2D;
import java.awt.geom.Rectangle2D;
import java.text.DecimalFormat;
import java.text.DecimalFormatSymbols;
import java.text.FieldPosition;
import java.text.NumberFormat;
import java.text.ParsePosition;
import java.util.List;
import java.util.Locale;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.jfree.chart.axis.AxisState;
import org.jfree.chart.axis.LogAxis;
import org.jfree.chart.axis.NumberAxis;
import org.jfree.chart.axis.NumberTick;
import org.jfree.chart.axis.NumberTickUnit;
import org.jfree.chart.axis.TickType;
import org.jfree.chart.axis.TickUnit;
import org.jfree.chart.axis.TickUnits;
import org.jfree.chart.axis.ValueAxis;
import org.jfree.chart.axis.ValueTick;
import org.jfree.chart.ui.RectangleEdge;
import org.jfree.chart.ui.TextAnchor;
import org.jfree.data.Range;

/** Creates JFreeChart's axes, with the units of the page. */
final class Scales {
  private Scales() {}

  static ValueAxis of(Axis model) {
    ValueAxis axis =
        switch (model.scale()) {
          case LINEAR -> linear(model.label());
          case LOGARITHMIC -> new Powers(model.label(), 10, numbers());
          case BYTES -> new Powers(model.label(), 2, new Bytes());
        };
    axis.setLabelFont(Drawing.TEXT);
    axis.setTickLabelFont(Drawing.TEXT);
    return axis;
  }

  private static ValueAxis linear(String label) {
    NumberAxis axis = new NumberAxis(label);
    axis.setAutoRangeIncludesZero(true);
    axis.setNumberFormatOverride(numbers());
    return axis;
  }

  private static NumberFormat numbers() {
    return new DecimalFormat("#,##0.######", DecimalFormatSymbols.getInstance(Locale.ROOT));
  }

  /** An axis of powers. With few powers of ten in range, 2 and 5 times them also have labels. */
  private static final class Powers extends LogAxis {
    private static final long serialVersionUID = 1;
    private static final int MAX_STEPS = 40;
    private static final int FEW = 2;

    private final NumberFormat format;

    Powers(String label, int base, NumberFormat format) {
      super(label);
      this.format = format;
      setBase(base);
      TickUnits steps = new TickUnits();
      for (int step = 1; step <= MAX_STEPS; step++) {
        // The minor ticks of one power are its multiples.
        steps.add(new NumberTickUnit(step, format, step == 1 ? base - 1 : 1));
      }
      setStandardTickUnits(steps);
    }

    /** Extends the range to at least one label. */
    @Override
    protected void autoAdjustRange() {
      super.autoAdjustRange();
      double low = Math.floor(calculateLog(getLowerBound()));
      double high = Math.ceil(calculateLog(getUpperBound()));
      if (high - low <= 1) {
        setRange(new Range(calculateValue(low), calculateValue(high)), false, false);
      }
    }

    /** Measures all labels, since those of sizes are longest in the middle. */
    @Override
    protected double estimateMaximumTickLabelWidth(Graphics2D g, TickUnit unit) {
      FontMetrics metrics = g.getFontMetrics(getTickLabelFont());
      int widest =
          IntStream.rangeClosed(
                  (int) Math.ceil(calculateLog(getLowerBound())),
                  (int) Math.floor(calculateLog(getUpperBound())))
              .map(power -> metrics.stringWidth(format.format(calculateValue(power))))
              .max()
              .orElse(0);
      return getTickLabelInsets().extendWidth(widest);
    }

    /** Replaces the labels of a log axis, which are drawn as shapes and with exponents. */
    @Override
    @SuppressWarnings({"unchecked", "rawtypes"})
    public List refreshTicks(Graphics2D g, AxisState state, Rectangle2D area, RectangleEdge edge) {
      boolean few = calculateLog(getUpperBound()) - calculateLog(getLowerBound()) <= FEW;
      List<ValueTick> ticks = super.refreshTicks(g, state, area, edge);
      return ticks.stream()
          .filter(
              tick ->
                  tick.getTickType().equals(TickType.MAJOR) || (few && labelled(tick.getValue())))
          .map(this::withText)
          .toList();
    }

    private boolean labelled(double value) {
      double power = Math.pow(getBase(), Math.floor(calculateLog(value)));
      return Stream.of(2, 5).anyMatch(times -> Math.round(value / power) == times);
    }

    private NumberTick withText(ValueTick tick) {
      return new NumberTick(
          TickType.MAJOR,
          tick.getValue(),
          format.format(tick.getValue()),
          tick.getTextAnchor(),
          TextAnchor.CENTER,
          0);
    }
  }

  private static final class Bytes extends NumberFormat {
    private static final long serialVersionUID = 1;

    @Override
    public StringBuffer format(double number, StringBuffer to, FieldPosition position) {
      return format(Math.round(number), to, position);
    }

    @Override
    public StringBuffer format(long number, StringBuffer to, FieldPosition position) {
      return to.append(ByteSize.text(number));
    }

    @Override
    public Number parse(String source, ParsePosition position) {
      throw new UnsupportedOperationException("sizes are only formatted");
    }
  }
}
