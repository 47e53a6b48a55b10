package io.nccl4j.tools.evidence;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** Tests of reading the table of the bandwidth command and nccl-tests. */
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
  void rowIsParsed() {
    assertEquals(
        List.of(new PerfTable.Row(1 << 20, 23.52, 44.59, 40.0, 20.1, 52.17, 41.0, 2)),
        PerfTable.parse(HEAD + ROW + "# Out of bounds values : 2 FAILED\n"));
  }

  @Test
  void missingInPlaceFormHasNoNumbers() {
    PerfTable.Row row = PerfTable.parse(NO_IN_PLACE).getFirst();
    assertTrue(Double.isNaN(row.inPlaceTime()));
    assertEquals(2.5, row.time());
    assertEquals(0, row.wrong());
  }

  private static PerfTable of(String script, Duration limit)
      throws IOException, InterruptedException {
    return PerfTable.of(List.of("sh", "-c", script), Map.of(), limit);
  }

  @Test
  void failedProgramIsNamedWithLastLine() throws IOException, InterruptedException {
    PerfTable table = of("echo out of memory; exit 1", Duration.ofMinutes(1));
    String message = assertThrows(IOException.class, table::whole).getMessage();
    assertTrue(message.endsWith("exited with status 1: out of memory"), message);
  }

  @Test
  void hungProgramIsKilledAndItsRowsKept() throws IOException, InterruptedException {
    long start = System.nanoTime();
    // The child keeps the output open.
    PerfTable table = of("echo '" + ROW + "'; sleep 300 & wait", Duration.ofSeconds(5));
    assertTrue(System.nanoTime() - start < Duration.ofSeconds(40).toNanos());
    assertEquals(List.of(1L << 20), table.rows().stream().map(PerfTable.Row::size).toList());
    assertTrue(table.ended().startsWith("did not finish within 5 s: sh"), table.ended());
    assertThrows(IOException.class, table::whole);
  }

  @Test
  void tableWithoutRowsIsIncomplete() throws IOException, InterruptedException {
    PerfTable table = of("true", Duration.ofMinutes(1));
    assertEquals("", table.ended());
    assertEquals("no rows", assertThrows(IOException.class, table::whole).getMessage());
  }

  @Test
  void medianOfEvenCountIsTheMeanOfTwo() {
    assertEquals(2, NcclTests.median(new double[] {3, 1, 2}));
    assertEquals(2.5, NcclTests.median(new double[] {4, 1, 2, 3}));
  }
}
