package io.nccl4j.tools.perf;

/**
 * One line of the table.
 *
 * @param bytes the size that is shown
 * @param count the count that the C function takes
 * @param type the element type
 * @param op the operator's name, or {@code none}
 * @param root the root, or -1
 * @param outOfPlace what came out with separate buffers
 * @param inPlace what came out in place
 */
record Row(
    long bytes, long count, String type, String op, int root, Cell outOfPlace, Cell inPlace) {
  /** The {@link Cell#wrong} of what was not checked. */
  static final long UNCHECKED = -1;

  /**
   * One measurement.
   *
   * @param seconds the time of one operation, or NaN where it cannot be run
   * @param cpuSeconds the time to enqueue one operation
   * @param algBw the algorithm bandwidth, in GB/s
   * @param busBw the bus bandwidth, in GB/s
   * @param wrong how many elements were wrong, or {@link #UNCHECKED}
   * @param latency how long single operations took, or null where that was not asked for
   * @param iterations the time of each iteration in seconds, or null where it was not asked for
   */
  // The array is made for the record and goes to the report alone.
  @SuppressWarnings("ArrayRecordComponent")
  record Cell(
      double seconds,
      double cpuSeconds,
      double algBw,
      double busBw,
      long wrong,
      Percentiles latency,
      double[] iterations) {
    /** What stands in the table where an operation has no such form. */
    static final Cell IMPOSSIBLE =
        new Cell(Double.NaN, Double.NaN, Double.NaN, Double.NaN, UNCHECKED, null, null);
  }
}
