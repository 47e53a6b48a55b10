package io.nccl4j.tools.evidence;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.fixtures.programs.EmulatedMachine;
import io.nccl4j.fixtures.programs.EmulatedNccl;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * Compares results of NVIDIA's NCCL on the emulated CUDA with the reference backend, bit for bit,
 * with the programs of the evidence: every type and operator. The kernels are the emulation's, so
 * this shows that both follow the order that NCCL's host code decides, not what a GPU computes.
 */
@Timeout(600)
class EmulatedBitsTest {
  @TempDir Path folder;

  private EmulatedPlan plan(Map<String, String> machine) {
    Map<String, String> environment = EmulatedNccl.environment(4);
    environment.putAll(machine);
    environment.put("NCCL_MAX_CTAS", "2");
    return new EmulatedPlan(folder, environment);
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
    comparePrediction(4, Map.of(), algorithm, protocol);
  }

  /** The rings and trees of eight ranks follow the machine's links. */
  @ParameterizedTest
  @CsvSource({"DGX_H100, Ring, LL128", "PCIE, Ring, Simple", "PCIE, Tree, LL"})
  void allReducesOnOtherMachinesHavePredictedBits(
      EmulatedMachine machine, String algorithm, String protocol) {
    comparePrediction(8, machine.environment(), algorithm, protocol);
  }

  private void comparePrediction(
      int ranks, Map<String, String> machine, String algorithm, String protocol) {
    Outcome outcome = run(plan(machine).prediction(ranks, algorithm, protocol));
    // Three counts, five operators and twelve types.
    assertEquals(
        3 * 5 * 12 * ranks + " results compared with the prediction bit for bit, 0 differ",
        outcome.report().summary());
  }

  @Test
  void collectivesOfTwoProcessesHaveTheBitsOfTheReference() {
    run(plan(Map.of()).collectives(2));
  }

  @ParameterizedTest
  @EnumSource
  void collectivesOnOtherMachinesHaveTheBitsOfTheReference(EmulatedMachine machine) {
    run(plan(machine.environment()).collectives(4));
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
