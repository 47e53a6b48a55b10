package io.nccl4j.tools.plots;

/**
 * One axis of a chart.
 *
 * @param label what it shows, with the unit
 * @param scale how values are placed on it
 */
public record Axis(String label, Scale scale) {
  /** How values are placed on an axis. */
  public enum Scale {
    /** From 0 on. */
    LINEAR,
    /** By powers of ten; what is 0 or less has no place. */
    LOGARITHMIC,
    /** By powers of two, for sizes in bytes; what is 0 has no place. */
    BYTES
  }

  /** Returns whether equal distances are equal ratios. */
  boolean logarithmic() {
    return scale != Scale.LINEAR;
  }
}
