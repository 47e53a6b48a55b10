package io.nccl4j.examples.evidence;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

/** Which steps are possible on which machine, and with which variables. */
class PlanTest {
  private static Machine gpu(String nccl, int devices) {
    return new Machine(
        true, false, "Some GPU", devices, nccl, "/n/libnccl.so.2", "/c/libcudart.so");
  }

  private static Map<String, Step> steps(Machine machine, Map<String, String> environment) {
    return new Plan(Path.of("/work"), false, environment)
        .rest(machine).stream().collect(Collectors.toMap(Step::name, Function.identity()));
  }

  private static Map<String, Step> steps(Machine machine) {
    return steps(machine, Map.of("PATH", "/bin:/usr/bin"));
  }

  @Test
  void theNamesAreThoseOfTheSteps() {
    List<String> names = new ArrayList<>(List.of("device"));
    new Plan(Path.of("/work"), false, Map.of())
        .rest(gpu("2.30.7", 1))
        .forEach(step -> names.add(step.name()));
    assertEquals(Plan.NAMES, names);
  }

  @Test
  void withoutAGpuNothingIsPossible() {
    for (Step step : steps(Machine.NONE).values()) {
      assertEquals("no usable GPU, see the first step", step.impossible(), step.name());
    }
  }

  @Test
  void theRanksOfTwoProcessesAreToNcclOnTwoHosts() {
    Step step = steps(gpu("2.28.9", 1)).get("cross-check-2-processes");
    List<String> hosts = new ArrayList<>();
    for (Step.Command command : step.commands()) {
      assertEquals("Socket", command.environment().get("NCCL_NET"));
      assertEquals("lo", command.environment().get("NCCL_SOCKET_IFNAME"));
      assertTrue(command.words().contains("-Dio.nccl4j.nccl.library=/n/libnccl.so.2"));
      hosts.add(command.environment().get("NCCL_HOSTID"));
    }
    assertEquals(List.of("nccl4j-evidence-0", "nccl4j-evidence-1"), hosts);
  }

  @Test
  void severalRanksOfOneProcessShareAGpuOnlyFrom230On() {
    Step old = steps(gpu("2.28.9", 1)).get("contract-2");
    assertTrue(old.impossible().endsWith("this is 2.28.9"), old.impossible());
    Step step = steps(gpu("2.30.4", 1)).get("contract-2");
    assertNull(step.impossible());
    Map<String, String> variables = step.commands().getFirst().environment();
    assertEquals("1", variables.get("NCCL_MULTI_RANK_GPU_ENABLE"));
  }

  @Test
  void ncclIsToSayWhyItFailsUnlessItWasToldWhatToSay() {
    for (Step step : steps(gpu("2.30.7", 1)).values()) {
      for (Step.Command command : step.commands()) {
        String level = step.name().startsWith("prediction-") ? "INFO" : "WARN";
        assertEquals(level, command.environment().get("NCCL_DEBUG"), step.name());
      }
    }
    Step told = steps(gpu("2.30.7", 1), Map.of("NCCL_DEBUG", "INFO")).get("latency");
    assertNull(told.commands().getFirst().environment().get("NCCL_DEBUG"));
  }

  @Test
  void aPredictionIsOfWhatNcclIsPinnedTo() {
    Step step = steps(gpu("2.30.7", 1)).get("prediction-tree-ll");
    Map<String, String> variables = step.commands().getFirst().environment();
    assertEquals("Tree", variables.get("NCCL_ALGO"));
    assertEquals("LL", variables.get("NCCL_PROTO"));
    assertEquals("1", variables.get("NCCL_MAX_CTAS"));
    assertEquals("/work/prediction-tree-ll.nccl.log", variables.get("NCCL_DEBUG_FILE"));
    assertTrue(
        steps(gpu("2.28.9", 1)).get("prediction-ring-ll").impossible().endsWith("this is 2.28.9"));
    Step own = steps(gpu("2.28.9", 4)).get("prediction-ring-simple");
    assertNull(own.commands().getFirst().environment().get("NCCL_MULTI_RANK_GPU_ENABLE"));
  }

  @Test
  void ranksThatHaveAGpuEachNeedNoVariables() {
    Step step = steps(gpu("2.28.9", 2)).get("contract-2");
    assertNull(step.impossible());
    assertNull(step.commands().getFirst().environment().get("NCCL_MULTI_RANK_GPU_ENABLE"));
    assertNotNull(steps(gpu("2.28.9", 2)).get("contract-4").impossible());
  }

  @Test
  void ncclTestsAreRunWhereTheyAreNamed() {
    assertTrue(steps(gpu("2.30.7", 1)).get("nccl-tests").impossible().startsWith("NCCL_TESTS_DIR"));
    Step step = steps(gpu("2.30.7", 1), Map.of("NCCL_TESTS_DIR", "/tests")).get("nccl-tests");
    assertTrue(step.commands().getFirst().words().contains("/tests"));
  }

  @Test
  void withoutPythonTheSharedCommunicatorIsNotPossible() {
    Step step = steps(gpu("2.30.7", 1), Map.of("PATH", "/none")).get("interop");
    assertEquals("python3 is not on the PATH", step.impossible());
  }
}
