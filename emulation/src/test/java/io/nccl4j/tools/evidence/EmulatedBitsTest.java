package io.nccl4j.tools.evidence;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.emulation.EmulatedMachine;
import io.nccl4j.emulation.EmulatedNccl;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
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
 * with the steps of the evidence: every type and operator. The kernels are the emulation's, so this
 * shows that both follow the order that NCCL's host code decides, not what a GPU computes.
 */
@Timeout(600)
class EmulatedBitsTest {
  @TempDir Path folder;

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
    Map<String, String> environment = environment(ranks, machine);
    Step step = plan(environment, false, ranks).prediction(ranks, algorithm, protocol, 300);
    Outcome outcome = run(step, environment);
    // Three counts, five operators and twelve types.
    assertEquals(
        3 * 5 * 12 * ranks + " results compared with the prediction bit for bit, 0 differ",
        outcome.report().summary());
  }

  @Test
  void collectivesHaveTheBitsOfTheReference() {
    compareCollectives(Map.of());
  }

  @ParameterizedTest
  @EnumSource
  void collectivesOnOtherMachinesHaveTheBitsOfTheReference(EmulatedMachine machine) {
    compareCollectives(machine.environment());
  }

  private void compareCollectives(Map<String, String> machine) {
    Map<String, String> environment = environment(2, machine);
    Step step =
        plan(environment, true, 2).rest().stream()
            .filter(each -> each.name().equals("cross-check-two-processes"))
            .findFirst()
            .orElseThrow()
            .withDeadline(Duration.ofMinutes(5));
    run(step, environment);
  }

  private static Map<String, String> environment(int devices, Map<String, String> machine) {
    Map<String, String> environment = EmulatedNccl.environment(devices);
    environment.putAll(machine);
    environment.put("NCCL_MAX_CTAS", "2");
    return environment;
  }

  private EvidencePlan plan(Map<String, String> environment, boolean quick, int devices) {
    String nccl = environment.get("NCCL4J_NCCL_LIBRARY");
    String cudart = environment.get("NCCL4J_CUDART_LIBRARY");
    Machine machine =
        new Machine(true, Libraries.EMULATED_CUDA, "emulated", devices, "2.30.7", nccl, cudart);
    return new EvidencePlan(folder, quick, environment, machine);
  }

  private Outcome run(Step step, Map<String, String> environment) {
    List<Step.Command> commands =
        step.commands().stream().map(command -> with(command, environment)).toList();
    Outcome outcome;
    try (StepRunner runner = StepRunner.inside(folder)) {
      outcome =
          runner.run(
              Step.of(
                  step.name(),
                  step.title(),
                  step.deadline(),
                  commands.toArray(Step.Command[]::new)));
    }
    assertEquals(
        Outcome.Status.PASSED,
        outcome.status(),
        () -> outcome.report().summary() + outcome.report().notes() + outcome.output());
    for (List<Object> row : outcome.report().tables().getFirst().rows()) {
      assertEquals(List.of("ok"), row.stream().skip(1).distinct().toList(), row.toString());
    }
    return outcome;
  }

  private static Step.Command with(Step.Command command, Map<String, String> environment) {
    Map<String, String> all = new HashMap<>(environment);
    all.putAll(command.environment());
    return new Step.Command(command.label(), command.words(), all, command.report());
  }
}
