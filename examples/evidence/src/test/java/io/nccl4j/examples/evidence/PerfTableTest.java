package io.nccl4j.examples.evidence;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** Reading the table of the bandwidth command, which is that of nccl-tests. */
class PerfTableTest {
  private static final String HEAD =
      """
      # nThread 1 nGpus 1 minBytes 8 maxBytes 1024 step: 2(factor)
      #       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
      """;
  private static final String ROW =
      "     1048576        262144     float     sum      -1    23.52   44.59   40.00       0    20.10   52.17   41.00       2\n";
  private static final String NO_IN_PLACE =
      "           8             2     float    none      -1     2.50    0.00    0.00       0      nan     nan     nan     N/A\n";

  @Test
  void aRowHasSizeTimesBandwidthsAndWrongElements() {
    assertEquals(
        List.of(new PerfTable.Row(1 << 20, 23.52, 44.59, 40.0, 20.1, 52.17, 41.0, 2)),
        PerfTable.parse(HEAD + ROW + "# Out of bounds values : 2 FAILED\n").rows());
  }

  @Test
  void aFormThatThereIsNotHasNoNumbers() {
    PerfTable.Row row = PerfTable.parse(NO_IN_PLACE).rows().getFirst();
    assertTrue(Double.isNaN(row.inPlaceTime()));
    assertEquals(2.5, row.time());
    assertEquals(0, row.wrong());
  }

  @Test
  void aProgramThatFailsIsNamedWithItsLastLine() {
    IOException failure =
        assertThrows(
            IOException.class,
            () ->
                PerfTable.of(shell("echo out of memory; exit 1"), Map.of(), Duration.ofMinutes(1)));
    assertTrue(failure.getMessage().contains("status 1 and 0 rows: out of memory"));
  }

  @Test
  void aProgramThatHangsIsKilled() {
    IOException failure =
        assertThrows(
            IOException.class,
            () -> PerfTable.of(shell("exec sleep 300"), Map.of(), Duration.ofSeconds(1)));
    assertTrue(failure.getMessage().startsWith("no end within 1 s: sh"), failure.getMessage());
  }

  @Test
  void theMedianOfAnEvenNumberIsBetweenTheMiddleTwo() {
    assertEquals(2, NcclTests.median(new double[] {3, 1, 2}));
    assertEquals(2.5, NcclTests.median(new double[] {4, 1, 2, 3}));
  }

  private static List<String> shell(String script) {
    return List.of("sh", "-c", script);
  }
}
