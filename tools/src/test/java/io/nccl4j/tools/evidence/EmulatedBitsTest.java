package io.nccl4j.tools.evidence;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.fixtures.programs.EmulatedNccl;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/**
 * Compares results of NVIDIA's NCCL on the emulated CUDA with the reference backend, bit for bit,
 * with the programs of the evidence: every type and operator. The kernels are the emulation's, so
 * this shows that both follow the order that NCCL's host code decides, not what a GPU computes.
 */
@Timeout(600)
class EmulatedBitsTest {
  @TempDir Path folder;

  private EmulatedPlan plan;

  @BeforeEach
  void createPlan() {
    Map<String, String> environment = EmulatedNccl.environment(4);
    environment.put("NCCL_MAX_CTAS", "2");
    plan = new EmulatedPlan(folder, environment);
  }

  /** With two channels, the smaller count is on one channel and the larger one on both. */
  @ParameterizedTest
  @CsvSource({
    "Ring, LL",
    "Ring, LL128",
    "Ring, Simple",
    "Tree, LL",
    "Tree, LL128",
    "Tree, Simple",
  })
  void allReducesHavePredictedBits(String algorithm, String protocol) {
    Outcome outcome = run(plan.prediction(algorithm, protocol));
    // Three counts, five operators and twelve types on four ranks.
    assertEquals(
        3 * 5 * 12 * 4 + " results compared with the prediction bit for bit, 0 differ",
        outcome.report().summary());
  }

  @Test
  void collectivesOfTwoProcessesHaveTheBitsOfTheReference() {
    run(plan.collectives());
  }

  private Outcome run(Step step) {
    Outcome outcome;
    try (StepRunner runner = new StepRunner(folder, folder.resolve("output"))) {
      outcome = runner.run(step);
    }
    assertEquals(
        Outcome.Status.PASSED,
        outcome.status(),
        () -> outcome.report().summary() + outcome.report().notes() + outcome.tails());
    for (List<Object> row : outcome.report().tables().getFirst().rows()) {
      assertEquals(List.of("ok"), row.stream().skip(1).distinct().toList(), row.toString());
    }
    return outcome;
  }
}
