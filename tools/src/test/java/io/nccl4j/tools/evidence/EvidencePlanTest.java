package io.nccl4j.tools.evidence;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests of the steps that are possible on a machine, and of their variables. */
class EvidencePlanTest {
  @TempDir Path folder;

  private static Machine gpu(String nccl, int devices) {
    return machine(Libraries.NVIDIA, nccl, devices);
  }

  private static Machine machine(Libraries libraries, String nccl, int devices) {
    return new Machine(
        true, libraries, "Some GPU", devices, nccl, "/n/libnccl.so.2", "/c/libcudart.so");
  }

  private static Map<String, Step> steps(Machine machine, Map<String, String> environment) {
    return new EvidencePlan(Path.of("/folder"), false, environment, machine)
        .rest().stream().collect(Collectors.toMap(Step::name, Function.identity()));
  }

  private static Map<String, Step> steps(Machine machine) {
    return steps(machine, Map.of("PATH", "/bin:/usr/bin"));
  }

  /** 470 of the 480 seconds that a borrowed machine often allows a command. */
  @Test
  void stepsFitEightMinutes() throws IOException {
    // Every optional step is possible.
    executable("nvidia-smi");
    executable("python3");
    Map<String, String> environment = Map.of("PATH", folder + "", "NCCL_TESTS_DIR", "/tests");
    for (Machine machine : List.of(gpu("2.28.9", 1), gpu("2.30.7", 1), gpu("2.30.7", 8))) {
      EvidencePlan plan = new EvidencePlan(Path.of("/folder"), false, environment, machine);
      List<Step> steps = new ArrayList<>(plan.rest());
      steps.add(plan.first());
      long seconds = steps.stream().mapToLong(step -> step.deadline().toSeconds()).sum();
      assertTrue(seconds <= 470, machine + " takes up to " + seconds + " s");
    }
  }

  private void executable(String name) throws IOException {
    Files.createFile(
        folder.resolve(name),
        PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
  }

  @Test
  void stepsRunInOrderOfImportance() {
    assertEquals(
        List.of("device", "prediction", "bandwidth", "nccl-tests", "cross-check", "contract"),
        EvidencePlan.names().stream().map(EvidencePlanTest::group).distinct().toList());
  }

  private static String group(String step) {
    return Stream.of("nccl-tests", "cross-check")
        .filter(step::startsWith)
        .findFirst()
        .orElse(step.replaceFirst("-.*", ""));
  }

  @Test
  void ranksThatShareAGpuHave32Connections() {
    List<String> sharing = new ArrayList<>();
    for (Step step : steps(gpu("2.30.7", 1)).values()) {
      boolean shares =
          step.title().contains("on one GPU") || step.name().equals("cross-check-python");
      for (Step.Command command : step.commands()) {
        String connections = command.environment().get("CUDA_DEVICE_MAX_CONNECTIONS");
        assertEquals(shares ? "32" : null, connections, step.name());
      }
      if (shares) {
        sharing.add(step.name());
      }
    }
    assertEquals(11, sharing.size(), sharing.toString());
  }

  @Test
  void bandwidthHasOneRankPerGpu() {
    Map<String, Step> steps = steps(gpu("2.28.9", 8), Map.of("NCCL_TESTS_DIR", "/tests"));
    assertWords(steps.get("bandwidth-all-reduce"), "all_reduce --backend nccl -g 8");
    assertWords(steps.get("nccl-tests-one-process"), "--size 8");
    assertWords(steps(gpu("2.28.9", 1)).get("bandwidth-all-gather"), "-g 1");
  }

  private static void assertWords(Step step, String words) {
    String all = String.join(" ", step.commands().getFirst().words()) + " ";
    assertTrue(all.contains(" " + words + " "), all);
  }

  @Test
  void nothingIsPossibleWithoutGpu() {
    for (Step step : steps(Machine.NONE).values()) {
      assertEquals("the first step found no usable GPU", step.impossible(), step.name());
    }
  }

  @Test
  void ranksOfTwoProcessesAppearOnTwoHosts() {
    Step step = steps(gpu("2.28.9", 1)).get("cross-check-two-processes");
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
  void ranksOfOneProcessShareGpuSince230() {
    Step old = steps(gpu("2.28.9", 1)).get("contract-four-ranks");
    assertTrue(old.impossible().endsWith("this is 2.28.9"), old.impossible());
    Step step = steps(gpu("2.30.4", 1)).get("contract-four-ranks");
    assertNull(step.impossible());
    Map<String, String> variables = step.commands().getFirst().environment();
    assertEquals("1", variables.get("NCCL_MULTI_RANK_GPU_ENABLE"));
  }

  @Test
  void groupsAndNamesSelectSteps() {
    assertTrue(EvidencePlan.selects(List.of(), "bandwidth-broadcast"));
    assertTrue(EvidencePlan.selects(List.of("bandwidth", "contract"), "contract-four-ranks"));
    assertTrue(EvidencePlan.selects(List.of("bandwidth-broadcast"), "bandwidth-broadcast"));
    assertFalse(EvidencePlan.selects(List.of("bandwidth-broadcast"), "bandwidth-shared"));
    assertFalse(EvidencePlan.selects(List.of("nccl-tests"), "contract-one-process"));
  }

  @Test
  void contractHasAsManyRanksAsPossible() {
    assertEquals("1", contractRanks("2.28.9", 1));
    assertEquals("2", contractRanks("2.30.7", 1));
    assertEquals("3", contractRanks("2.28.9", 3));
    assertEquals("8", contractRanks("2.30.7", 16));
  }

  private static String contractRanks(String nccl, int devices) {
    Step step = steps(gpu(nccl, devices)).get("contract-one-process");
    List<String> words = step.commands().getFirst().words();
    return words.get(words.indexOf("--size") + 1);
  }

  @Test
  void predictionBefore230UsesFourProcesses() {
    Step step = steps(gpu("2.28.9", 1)).get("prediction-ring-ll");
    assertNull(step.impossible());
    assertEquals(4, step.commands().size());
    for (int rank = 0; rank < 4; rank++) {
      Map<String, String> variables = step.commands().get(rank).environment();
      assertEquals("nccl4j-evidence-" + rank, variables.get("NCCL_HOSTID"));
      assertEquals("LL", variables.get("NCCL_PROTO"));
      assertEquals("512", variables.get("NCCL_NTHREADS"));
    }
  }

  @Test
  void ncclDebugIsSetUnlessGiven() {
    for (Step step : steps(gpu("2.30.7", 1)).values()) {
      for (Step.Command command : step.commands()) {
        String level = step.name().startsWith("prediction-") ? "INFO" : "WARN";
        assertEquals(level, command.environment().get("NCCL_DEBUG"), step.name());
      }
    }
    Step withDebugLevel =
        steps(gpu("2.30.7", 1), Map.of("NCCL_DEBUG", "INFO")).get("bandwidth-all-reduce");
    assertNull(withDebugLevel.commands().getFirst().environment().get("NCCL_DEBUG"));
  }

  @Test
  void predictionPinsNccl() {
    Step step = steps(gpu("2.30.7", 1)).get("prediction-tree-ll");
    Map<String, String> variables = step.commands().getFirst().environment();
    assertEquals("Tree", variables.get("NCCL_ALGO"));
    assertEquals("LL", variables.get("NCCL_PROTO"));
    assertEquals("512", variables.get("NCCL_NTHREADS"));
    assertEquals("1", variables.get("NCCL_MAX_CTAS"));
    assertEquals("/folder/prediction-tree-ll.nccl.%p", variables.get("NCCL_DEBUG_FILE"));
    Step own = steps(gpu("2.28.9", 4)).get("prediction-ring-simple");
    assertNull(own.commands().getFirst().environment().get("NCCL_MULTI_RANK_GPU_ENABLE"));
  }

  @Test
  void ranksWithOwnGpuNeedNoVariables() {
    Step step = steps(gpu("2.28.9", 2)).get("contract-one-process");
    Map<String, String> variables = step.commands().getFirst().environment();
    assertNull(variables.get("NCCL_MULTI_RANK_GPU_ENABLE"));
    assertNull(variables.get("CUDA_DEVICE_MAX_CONNECTIONS"));
    Step processes = steps(gpu("2.28.9", 2)).get("cross-check-two-processes");
    for (int rank = 0; rank < 2; rank++) {
      Step.Command command = processes.commands().get(rank);
      assertNull(command.environment().get("NCCL_HOSTID"));
      assertEquals("" + rank, command.environment().get("NCCL4J_LOCAL_RANK"));
    }
  }

  /** So that a run there tests what will run on a GPU. */
  @Test
  void emulatedCudaHasTheStepsOfGpus() {
    for (int devices = 1; devices <= 2; devices++) {
      Map<String, Step> gpu = steps(gpu("2.30.7", devices));
      Map<String, Step> emulated = steps(machine(Libraries.EMULATED_CUDA, "2.30.7", devices));
      for (Step step : emulated.values()) {
        assertEquals(gpu.get(step.name()).impossible(), step.impossible());
        assertEquals(gpu.get(step.name()).deadline(), step.deadline());
        for (int i = 0; i < step.commands().size(); i++) {
          assertEquals(
              gpu.get(step.name()).commands().get(i).words(), step.commands().get(i).words());
        }
      }
    }
  }

  @Test
  void ncclTestsNeedTheirVariable() {
    String name = "nccl-tests-one-process";
    assertTrue(steps(gpu("2.30.7", 1)).get(name).impossible().startsWith("NCCL_TESTS_DIR"));
    Step step = steps(gpu("2.30.7", 1), Map.of("NCCL_TESTS_DIR", "/tests")).get(name);
    assertTrue(step.commands().getFirst().words().contains("/tests"));
  }

  @Test
  void sharedCommunicatorNeedsPython() {
    Step step = steps(gpu("2.30.7", 1), Map.of("PATH", "/none")).get("cross-check-python");
    assertEquals("python3 is not on the PATH", step.impossible());
  }
}
