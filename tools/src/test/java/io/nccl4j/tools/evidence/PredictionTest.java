package io.nccl4j.tools.evidence;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.fixtures.RankThreads;
import io.nccl4j.reference.Algorithm;
import io.nccl4j.reference.ReferenceBackend;
import io.nccl4j.reference.ReferenceOptions;
import io.nccl4j.schedule.Layout;
import io.nccl4j.schedule.Protocol;
import io.nccl4j.tools.evidence.Child.NotPossible;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests of the comparison, with a reference backend instead of NCCL. */
class PredictionTest {
  @TempDir Path folder;

  private final ReferenceOptions ring =
      ReferenceOptions.defaults()
          .withAlgorithm(Algorithm.RING)
          .withLayout(Layout.defaults().withProtocol(Protocol.LL).withChannels(1));

  private int differences(ReferenceOptions actual, ReferenceOptions predicted) throws IOException {
    Child child = child("report");
    CommunicatorConfig config = CommunicatorConfig.defaults();
    try (Backend backend = ReferenceBackend.open(4, actual)) {
      List<Communicator> ranks = backend.newCommunicators(new int[] {0, 1, 2, 3}, config);
      try {
        return Prediction.compare(child, config, ranks, predicted);
      } finally {
        ranks.forEach(Communicator::close);
      }
    }
  }

  private Child child(String name) {
    Child child = new Child();
    child.quick = true;
    child.report = folder.resolve(name + ".json");
    return child;
  }

  @Test
  void sameOrderGivesSameBits() throws IOException {
    assertEquals(0, differences(ring, ring));
  }

  /** As with NCCL before 2.30: each process has one rank, and predicts for all. */
  @Test
  void singleRankMatchesPrediction() throws Exception {
    CommunicatorConfig config = CommunicatorConfig.defaults();
    try (Backend backend = ReferenceBackend.open(4, ring)) {
      List<Communicator> ranks = backend.newCommunicators(new int[] {0, 1, 2, 3}, config);
      RankThreads.run(
          4,
          rank -> {
            Child child = child("rank" + rank);
            assertEquals(0, Prediction.compare(child, config, List.of(ranks.get(rank)), ring));
            String report = Files.readString(child.report);
            assertTrue(report.contains("compared FLOAT8E5M2"), report);
          });
      ranks.forEach(Communicator::close);
    }
  }

  @Test
  void otherRankOrderIsDetected() throws IOException {
    List<List<Integer>> reordered = List.of(List.of(0, 3, 1, 2));
    ReferenceOptions other = ring.withLayout(ring.layout().withRingOrders(reordered));
    assertTrue(differences(ring, other) > 0);
  }

  @Test
  void otherAlgorithmIsDetected() throws IOException {
    assertTrue(differences(ring, ring.withAlgorithm(Algorithm.TREE)) > 0);
  }

  @Test
  void optionsMatchVariablesAndLog() throws IOException, NotPossible {
    Path log = folder.resolve("nccl.log");
    // One file per process: only rank 0 writes the rings.
    Files.writeString(folder.resolve("nccl.log.17"), "host:1:2 [0] NCCL INFO comm 1 rank 1\n");
    Files.writeString(
        folder.resolve("nccl.log.16"), "host:1:2 [0] NCCL INFO Channel 00/01 : 0 3 1 2\n");
    Map<String, String> environment =
        Map.of("NCCL_ALGO", "Ring", "NCCL_PROTO", "LL", "NCCL_DEBUG_FILE", log + ".%p");
    ReferenceOptions options = Prediction.options("2.29.2", 4, environment);
    assertEquals(Algorithm.RING, options.algorithm());
    assertEquals(Protocol.LL, options.layout().protocol());
    assertEquals(1, options.layout().channels());
    assertEquals(List.of(List.of(0, 3, 1, 2)), options.layout().ringOrders());
    assertEquals(16 << 10, options.layout().cellBytes());
    assertEquals(8 << 10, Prediction.options("2.28.9", 4, environment).layout().cellBytes());
  }

  @Test
  void predictionWithoutLogIsNotPossible() {
    Map<String, String> environment = Map.of("NCCL_DEBUG_FILE", folder.resolve("none").toString());
    assertThrows(NotPossible.class, () -> Prediction.options("2.30.7", 4, environment));
  }
}
