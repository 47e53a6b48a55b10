package io.nccl4j.tools.evidence;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import org.junit.jupiter.api.Test;

/** Tests of reading the table of the bandwidth command and nccl-tests. */
class NcclTestsTest {
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
        List.of(new NcclTests.Row(1 << 20, 23.52, 20.1)),
        NcclTests.parse(HEAD + ROW + "# Out of bounds values : 2 FAILED\n"));
  }

  @Test
  void missingInPlaceFormHasNoTime() {
    assertEquals(
        List.of(new NcclTests.Row(8, 2.5, Double.NaN)), NcclTests.parse(HEAD + NO_IN_PLACE));
  }

  @Test
  void medianOfEvenCountIsTheMeanOfTwo() {
    assertEquals(2, NcclTests.median(3, 1, 2));
    assertEquals(2.5, NcclTests.median(4, 1, 2, 3));
  }
}
