package io.nccl4j.tools.evidence;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.fixtures.programs.EmulatedMachine;
import io.nccl4j.fixtures.programs.EmulatedNccl;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
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
  private static final Duration DEADLINE = Duration.ofSeconds(560);

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
  void allReducesHavePredictedBits(String algorithm, String protocol) throws Exception {
    comparePrediction(4, Map.of(), algorithm, protocol);
  }

  /** The rings and trees of eight ranks follow the machine's links. */
  @ParameterizedTest
  @CsvSource({"DGX_H100, Ring, LL128", "PCIE, Ring, Simple", "PCIE, Tree, LL"})
  void allReducesOnOtherMachinesHavePredictedBits(
      EmulatedMachine machine, String algorithm, String protocol) throws Exception {
    comparePrediction(8, machine.environment(), algorithm, protocol);
  }

  private void comparePrediction(
      int ranks, Map<String, String> machine, String algorithm, String protocol) throws Exception {
    Map<String, String> variables = EmulatedNccl.environment(ranks);
    variables.putAll(machine);
    variables.put("NCCL_MAX_CTAS", "2");
    variables.put("NCCL_NTHREADS", "512");
    variables.put("NCCL_NVLS_ENABLE", "0");
    variables.put(Prediction.ALGORITHM, algorithm);
    variables.put(Prediction.PROTOCOL, protocol);
    variables.put("NCCL_DEBUG", "INFO");
    variables.put("NCCL_DEBUG_SUBSYS", "INIT");
    variables.put(Prediction.LOG, folder.resolve("nccl.log" + Prediction.PROCESS).toString());
    Outcome outcome = run(command("process", variables, "prediction", "--size", "" + ranks));
    assertPassed(outcome);
    // Three counts, five operators and twelve types.
    assertEquals(
        3 * 5 * 12 * ranks + " results compared with the prediction bit for bit, 0 differ",
        outcome.report().summary());
    assertAllOk(outcome.report().tables().getFirst());
  }

  @Test
  void collectivesOfTwoProcessesHaveTheBitsOfTheReference() throws Exception {
    compareProcesses(2, Map.of());
  }

  @ParameterizedTest
  @EnumSource
  void collectivesOnOtherMachinesHaveTheBitsOfTheReference(EmulatedMachine machine)
      throws Exception {
    compareProcesses(4, machine.environment());
  }

  private void compareProcesses(int size, Map<String, String> machine) throws Exception {
    Map<String, String> variables = EmulatedNccl.environment(size);
    variables.putAll(machine);
    variables.put("NCCL_MAX_CTAS", "2");
    Step.Command[] ranks = new Step.Command[size];
    for (int rank = 0; rank < ranks.length; rank++) {
      ranks[rank] =
          command(
              "rank " + rank,
              variables,
              "cross-check",
              "--quick",
              "--size",
              "" + size,
              "--rank",
              "" + rank,
              "--device",
              "" + rank,
              "--meet",
              folder.resolve("meet").toString());
    }
    Outcome outcome = run(ranks);
    assertPassed(outcome);
    assertAllOk(outcome.report().tables().getFirst());
  }

  private static void assertAllOk(Table table) {
    for (List<Object> row : table.rows()) {
      assertEquals(List.of("ok"), row.stream().skip(1).distinct().toList(), row.toString());
    }
  }

  private Step.Command command(String label, Map<String, String> variables, String... arguments) {
    Path report = folder.resolve(label + ".json");
    List<String> words = new ArrayList<>(Java.command(Child.class.getName()));
    Stream.concat(Stream.of(arguments), Stream.of("--report", report.toString()))
        .forEach(words::add);
    Map<String, String> environment = new HashMap<>(variables);
    environment.put("CLASSPATH", Java.classPath());
    return new Step.Command(label, words, environment, report);
  }

  private Outcome run(Step.Command... commands) throws IOException {
    try (StepRunner runner = new StepRunner(folder, folder.resolve("output"))) {
      return runner.run(Step.of("step", "A step", DEADLINE, commands));
    }
  }

  private static void assertPassed(Outcome outcome) {
    assertEquals(
        Outcome.Status.PASSED,
        outcome.status(),
        () -> outcome.report().summary() + outcome.report().notes() + outcome.tails());
  }
}
