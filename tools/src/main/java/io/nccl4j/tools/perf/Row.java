package io.nccl4j.tools.perf;

/**
 * One line of the table.
 *
 * @param bytes the printed size
 * @param count the count that the C function takes
 * @param type the element type
 * @param op the operator's name, or {@code none}
 * @param root the root, or -1
 * @param outOfPlace the measurement with separate buffers
 * @param inPlace the measurement in place, or a second one out of place if there is no such form
 */
record Row(
    long bytes, long count, String type, String op, int root, Cell outOfPlace, Cell inPlace) {
  /** The value of {@link Cell#wrong} if the data was not checked. */
  static final long UNCHECKED = -1;

  /**
   * One measurement.
   *
   * @param seconds the time of one operation
   * @param cpuSeconds the time to enqueue one operation
   * @param algBw the algorithm bandwidth, in GB/s
   * @param busBw the bus bandwidth, in GB/s
   * @param wrong the number of wrong elements, or {@link #UNCHECKED}
   * @param latency the times of single operations, or null if they were not measured
   * @param iterations the time of each iteration in seconds, or null if they were not measured
   * @param algorithm what NCCL chose, or null if that is not shown
   */
  // The array is created for this record and only read by the report.
  @SuppressWarnings("ArrayRecordComponent")
  record Cell(
      double seconds,
      double cpuSeconds,
      double algBw,
      double busBw,
      long wrong,
      Percentiles latency,
      double[] iterations,
      String algorithm) {}
}
