package io.nccl4j.examples.evidence;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.examples.evidence.Child.NotPossible;
import io.nccl4j.reference.Algorithm;
import io.nccl4j.reference.ReferenceBackend;
import io.nccl4j.reference.ReferenceOptions;
import io.nccl4j.schedule.Protocol;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The comparison, with a reference in the place of NCCL, once as predicted and once not. */
class PredictionTest {
  @TempDir Path folder;

  private final ReferenceOptions ring =
      ReferenceOptions.defaults()
          .withAlgorithm(Algorithm.RING)
          .withProtocol(Protocol.LL)
          .withChannels(1);

  private int differences(ReferenceOptions actual, ReferenceOptions predicted) throws IOException {
    Child child = new Child();
    child.quick = true;
    child.report = folder.resolve("report.json");
    CommunicatorConfig config = CommunicatorConfig.defaults();
    try (Backend backend = ReferenceBackend.open(4, actual)) {
      List<Communicator> ranks = backend.communicators(config, 0, 1, 2, 3);
      try {
        return Prediction.compare(child, config, ranks, predicted);
      } finally {
        ranks.forEach(Communicator::close);
      }
    }
  }

  @Test
  void theSameOrderGivesTheSameBits() throws IOException {
    assertEquals(0, differences(ring, ring));
  }

  @Test
  void anotherOrderOfTheRanksIsNoticed() throws IOException {
    List<List<Integer>> turned = List.of(List.of(0, 3, 1, 2));
    ReferenceOptions other = ring.withLayout(ring.layout().withRingOrders(turned));
    assertTrue(differences(ring, other) > 0);
  }

  @Test
  void anotherAlgorithmIsNoticed() throws IOException {
    assertTrue(differences(ring, ring.withAlgorithm(Algorithm.TREE)) > 0);
  }

  @Test
  void theOptionsAreThoseOfTheVariablesAndTheLog() throws IOException, NotPossible {
    Path log = folder.resolve("nccl.log");
    Files.writeString(log, "host:1:2 [0] NCCL INFO Channel 00/01 : 0 3 1 2\n");
    Map<String, String> environment =
        Map.of("NCCL_ALGO", "Ring", "NCCL_PROTO", "LL", "NCCL_DEBUG_FILE", log.toString());
    ReferenceOptions options = Prediction.options(4, environment);
    assertEquals(Algorithm.RING, options.algorithm());
    assertEquals(Protocol.LL, options.layout().protocol());
    assertEquals(1, options.channels());
    assertEquals(List.of(List.of(0, 3, 1, 2)), options.layout().ringOrders());
  }

  @Test
  void withoutALogNothingIsPredicted() {
    Map<String, String> environment = Map.of("NCCL_DEBUG_FILE", folder.resolve("none").toString());
    assertThrows(NotPossible.class, () -> Prediction.options(4, environment));
  }
}
