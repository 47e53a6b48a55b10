package io.nccl4j.tools.perf;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.tools.perf.Collective.Shape;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Counts and bandwidths are computed as in nccl-tests. */
class CollectiveTest {
  @ParameterizedTest
  @CsvSource({
    // 1000 floats and 3 ranks: a slice of 333, rounded down to whole 16 bytes: 332
    "ALL_REDUCE, 1000, 4, 3, 1000, 1000, 1000, 0, 0",
    "BROADCAST, 1000, 4, 3, 1000, 1000, 1000, 0, 0",
    "REDUCE, 1000, 4, 3, 1000, 1000, 1000, 0, 0",
    "SENDRECV, 1000, 4, 3, 1000, 1000, 1000, 0, 0",
    "ALL_GATHER, 1000, 4, 3, 332, 996, 332, 332, 0",
    "REDUCE_SCATTER, 1000, 4, 3, 996, 332, 332, 0, 332",
    "ALLTOALL, 1000, 4, 3, 996, 996, 332, 0, 0",
    "GATHER, 1000, 4, 3, 332, 996, 332, 332, 0",
    "SCATTER, 1000, 4, 3, 996, 332, 332, 0, 332",
    "ALL_GATHER, 100, 1, 3, 32, 96, 32, 32, 0",
    "ALL_GATHER, 100, 8, 3, 32, 96, 32, 32, 0",
    "ALL_GATHER, 2, 4, 2, 0, 0, 0, 0, 0",
  })
  void countsMatchNcclTests(
      Collective collective,
      long count,
      int bytes,
      int ranks,
      long send,
      long recv,
      long param,
      long sendInPlace,
      long recvInPlace) {
    assertEquals(
        new Shape(send, recv, param, sendInPlace, recvInPlace),
        collective.shape(count, bytes, ranks));
  }

  @ParameterizedTest
  @CsvSource({
    "ALL_REDUCE, 4000, 1.5",
    "BROADCAST, 4000, 1",
    "REDUCE, 4000, 1",
    "SENDRECV, 4000, 1",
    "ALL_GATHER, 16000, 0.75",
    "REDUCE_SCATTER, 16000, 0.75",
    "ALLTOALL, 16000, 0.75",
    "GATHER, 16000, 0.75",
    "SCATTER, 16000, 0.75",
  })
  void bandwidthsOfFourRanks(Collective collective, double bytes, double factor) {
    Shape shape = new Shape(0, 0, 1000, 0, 0);
    assertEquals(bytes, collective.algorithmBytes(shape, 4, 4));
    assertEquals(factor, collective.busFactor(4));
  }

  @ParameterizedTest
  @CsvSource({"ALL_REDUCE, 0", "ALL_GATHER, 0", "BROADCAST, 1"})
  void busFactorOfOneRank(Collective collective, double factor) {
    assertEquals(factor, collective.busFactor(1));
  }
}
