package io.nccl4j.plugin;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.Operation;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests the code of the guide that learns from a sweep. */
class LearnedTunerTest {
  private static final String SWEEP =
      """
      size_bytes,choice,algorithm,protocol,state,time_us,busbw_gbs,reason
      1024,auto,,,ok,1.0,1.0,
      1024,ring simple,ring,simple,ok,9.0,0.1,
      1024,tree ll,tree,ll,ok,7.5,0.2,
      1024,nvls simple,nvls,simple,n/a,,,"NCCL cannot use nvls"
      1048576,ring simple,ring,simple,ok,20.0,90.0,
      1048576,tree ll,tree,ll,wrong,2.0,900.0,
      16777216,nvls_tree simple,nvls_tree,simple,ok,90.0,90.0,
      """;

  @TempDir private Path directory;

  @Test
  void quickestRightChoiceOfASweepIsSelectedFromItsSizeOn() throws Exception {
    Path sweep = Files.writeString(directory.resolve("sweep.csv"), SWEEP);
    Path table = directory.resolve("table.txt");
    LearnedTuner.learn(sweep, table);
    assertEquals(
        List.of("1024 tree ll", "1048576 ring simple", "16777216 nvls_tree simple"),
        Files.readAllLines(table));
    Tuner tuner = LearnedTuner.tuner(table, 8);
    assertEquals("unchanged", tuned(tuner, Operation.ALL_REDUCE, 1023, 8));
    assertEquals("TREE LL", tuned(tuner, Operation.ALL_REDUCE, 1024, 8));
    assertEquals("TREE LL", tuned(tuner, Operation.ALL_REDUCE, 1048575, 8));
    assertEquals("RING SIMPLE", tuned(tuner, Operation.ALL_REDUCE, 1 << 20, 8));
    // These costs have no NVLS.
    assertEquals("unchanged", tuned(tuner, Operation.ALL_REDUCE, 1 << 24, 8));
    assertEquals("unchanged", tuned(tuner, Operation.ALL_REDUCE, 1024, 4));
    assertEquals("unchanged", tuned(tuner, Operation.REDUCE, 1024, 8));
  }

  /** Returns what a tuner has made the cheapest of rings and trees, which all cost the same. */
  private static String tuned(Tuner tuner, Operation operation, long bytes, int ranks) {
    CostTable costs =
        new CostTable(
            new CostTable.TunedCommunicator(1, ranks, 1),
            operation,
            bytes,
            1,
            false,
            new float[] {5, 5, 5, 5, 5, 5},
            NcclProtocol.values().length);
    tuner.tune(costs);
    for (NcclAlgorithm algorithm : List.of(NcclAlgorithm.TREE, NcclAlgorithm.RING)) {
      for (NcclProtocol protocol : NcclProtocol.values()) {
        if (costs.microseconds(algorithm, protocol) < 5) {
          return algorithm + " " + protocol;
        }
      }
    }
    return "unchanged";
  }
}
