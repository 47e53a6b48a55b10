package io.nccl4j.benchmarks;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import java.util.OptionalDouble;
import org.junit.jupiter.api.Test;

class ReferenceReportTest {
  private static final OptionalDouble NOT_MEASURED = OptionalDouble.empty();

  @Test
  void processorPairsAreListedInOrder() throws Exception {
    assertEquals(
        "A cache line takes 282, 31, 30 ns from one processor to another, measured before the first"
            + " round and after each.",
        line(OptionalDouble.of(281.6), OptionalDouble.of(31.4), OptionalDouble.of(29.8)));
  }

  @Test
  void missingMeasurementKeepsItsCell() throws Exception {
    assertEquals(
        "A cache line takes 282, (not measured), 30 ns from one processor to another, measured"
            + " before the first round and after each.",
        line(OptionalDouble.of(281.6), NOT_MEASURED, OptionalDouble.of(29.8)));
  }

  @Test
  void missingResultsAreReported() throws Exception {
    String none = "The time of a cache line from one processor to another was not measured.";
    assertEquals(none, line());
    assertEquals(none, line(NOT_MEASURED, NOT_MEASURED));
  }

  /** Returns the third line of the report, after the machine and the rounds. */
  private static String line(OptionalDouble... cacheLineLatencies) throws Exception {
    Measurements measurements = new Measurements();
    List.of(cacheLineLatencies).forEach(measurements::addCacheLineLatency);
    return new ReferenceReport(measurements, 2).text().lines().toList().get(2);
  }
}
