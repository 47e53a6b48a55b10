package io.nccl4j.tools.plots;

/**
 * An axis of a chart.
 *
 * @param label the label, with the unit
 * @param scale the scale
 */
public record Axis(String label, Scale scale) {
  /** The scale of an axis. */
  public enum Scale {
    /** Linear; the range includes 0. */
    LINEAR,
    /** Powers of ten, for positive values. */
    LOGARITHMIC,
    /** Powers of two, for positive sizes in bytes. */
    BYTES
  }

  /** Returns whether the scale is logarithmic. */
  boolean logarithmic() {
    return scale != Scale.LINEAR;
  }
}
