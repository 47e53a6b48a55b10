package io.nccl4j.tools.perf;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

/** Percentiles use the nearest-rank method. */
class PercentilesTest {
  @Test
  void percentilesOfThousandTimes() {
    double[] times = IntStream.rangeClosed(1, 1000).map(i -> 1001 - i).asDoubleStream().toArray();
    assertEquals(new Percentiles(1000, 1, 500, 900, 990, 1000), Percentiles.of(times));
    assertEquals(1000, times[0], "the argument is not sorted");
  }

  @Test
  void p99OfFewTimesIsTheLongest() {
    double[] times = {3, 1, 2};
    assertEquals(new Percentiles(3, 1, 2, 3, 3, 3), Percentiles.of(times));
    assertArrayEquals(new double[] {3, 1, 2}, times);
  }

  @Test
  void percentilesOfSingleTime() {
    assertEquals(new Percentiles(1, 7, 7, 7, 7, 7), Percentiles.of(new double[] {7}));
  }
}
