package io.nccl4j.tools.evidence;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.Checkout;
import io.nccl4j.rendezvous.LaunchEnvironment;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
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
    return new EvidencePlan(Path.of("/out"), false, environment)
        .rest(machine).stream().collect(Collectors.toMap(Step::name, Function.identity()));
  }

  private static Map<String, Step> steps(Machine machine) {
    return steps(machine, Map.of("PATH", "/bin:/usr/bin"));
  }

  @Test
  void namesMatchTheSteps() {
    List<String> names = new ArrayList<>(List.of("device"));
    new EvidencePlan(Path.of("/out"), false, Map.of())
        .rest(gpu("2.30.7", 1))
        .forEach(step -> names.add(step.name()));
    List<String> withoutLauncher = new ArrayList<>(EvidencePlan.NAMES);
    withoutLauncher.remove(EvidencePlan.LAUNCHED);
    assertEquals(withoutLauncher, names);
  }

  /** 470 of the 480 seconds that a borrowed machine often allows a command. */
  @Test
  void oneGpuFitsEightMinutes() {
    Map<String, String> environment = Map.of("PATH", "/bin:/usr/bin", "NCCL_TESTS_DIR", "/tests");
    EvidencePlan plan = new EvidencePlan(Path.of("/out"), false, environment);
    for (String nccl : List.of("2.28.9", "2.30.7")) {
      List<Step> steps = new ArrayList<>(plan.rest(gpu(nccl, 1)));
      steps.add(plan.first());
      long seconds = steps.stream().mapToLong(step -> step.deadline().toSeconds()).sum();
      assertTrue(seconds <= 470, nccl + " takes up to " + seconds + " s");
    }
  }

  /** As shown in docs/evidence/README.md. */
  @Test
  void threeRunsOfSeveralGpusFitEightMinutesEach() throws IOException {
    Map<String, String> environment = Map.of("PATH", mpirun(), "NCCL_TESTS_DIR", "/tests");
    EvidencePlan plan = new EvidencePlan(Path.of("/out"), false, environment);
    List<List<String>> runs = new ArrayList<>();
    for (String line : Files.readAllLines(Checkout.ROOT.resolve("docs/evidence/README.md"))) {
      if (line.contains("evidence --steps ")) {
        runs.add(List.of(line.strip().split(" ", -1)[3].split(",", -1)));
      }
    }
    assertEquals(
        Set.copyOf(EvidencePlan.GROUPS),
        Stream.concat(Stream.of("device"), runs.stream().flatMap(List::stream))
            .collect(Collectors.toSet()));
    for (List<String> run : runs) {
      long seconds =
          Stream.concat(Stream.of(plan.first()), plan.rest(gpu("2.30.7", 8)).stream())
              .filter(
                  step -> step.name().equals("device") || EvidencePlan.selects(run, step.name()))
              .mapToLong(step -> step.deadline().toSeconds())
              .sum();
      assertTrue(seconds <= 470, run + " takes up to " + seconds + " s");
    }
  }

  @Test
  void stepsRunInOrderOfImportance() {
    assertEquals(
        List.of(
            "device",
            "prediction",
            "bandwidth",
            "latency",
            "nccl-tests",
            "cross-check",
            "contract"),
        EvidencePlan.NAMES.stream().map(EvidencePlanTest::group).distinct().toList());
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
    assertEquals(10, sharing.size(), sharing.toString());
  }

  @Test
  void severalGpusUseOneAndSeveralProcesses() {
    Map<String, String> environment = Map.of("NCCL_TESTS_DIR", "/tests", "PATH", mpirun());
    Map<String, Step> steps = steps(gpu("2.28.9", 8), environment);
    for (String kind : List.of("bandwidth", "nccl-tests")) {
      assertRanks("ONE_PROCESS", "8", steps.get(kind + "-one-process"));
      assertRanks("PROCESSES", "8", steps.get(kind + "-processes"));
    }
    assertRanks("ONE_PROCESS", "8", steps.get("bandwidth-sweep"));
    assertRanks("ONE_PROCESS", "1", steps(gpu("2.28.9", 1)).get("bandwidth-one-process"));
    for (String name : List.of("bandwidth-processes", "bandwidth-sweep", "nccl-tests-processes")) {
      String reason = steps(gpu("2.28.9", 1), environment).get(name).impossible();
      assertEquals("needs several GPUs, this machine has 1", reason, name);
    }
  }

  private String mpirun() {
    try {
      Files.createFile(
          folder.resolve("mpirun"),
          PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
      return folder.toString();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static void assertRanks(String layout, String ranks, Step step) {
    List<String> words = step.commands().getFirst().words();
    assertEquals(layout, words.get(words.indexOf("--layout") + 1), step.name());
    assertEquals(ranks, words.get(words.indexOf("--size") + 1), step.name());
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

  private static Step launched(int devices, String... variables) {
    Map<String, String> environment = new HashMap<>();
    environment.putAll(Map.of("MASTER_ADDR", "node1", "MASTER_PORT", "29500"));
    for (int i = 0; i < variables.length; i += 2) {
      environment.put(variables[i], variables[i + 1]);
    }
    return new EvidencePlan(Path.of("/out"), false, environment)
        .launched(gpu("2.28.9", devices), LaunchEnvironment.from(environment));
  }

  @Test
  void launchedRanksKeepTheJobId() {
    Step step =
        launched(8, "RANK", "1", "WORLD_SIZE", "16", "LOCAL_WORLD_SIZE", "8", "NCCL4J_RUN_ID", "7");
    assertEquals("Bandwidth, 16 ranks in 16 processes started by plain variables", step.title());
    assertRanks("LAUNCHED", "1", step);
    Step.Command command = step.commands().getFirst();
    assertEquals("7 evidence", command.environment().get("NCCL4J_RUN_ID"));
    assertNull(command.environment().get("NCCL_HOSTID"));
    assertEquals("1", command.words().get(command.words().indexOf("--rank") + 1));
  }

  @Test
  void podHasOneRankPerGpu() {
    Step step = launched(8, "JOB_COMPLETION_INDEX", "0", "WORLD_SIZE", "2");
    assertEquals("Bandwidth, 16 ranks in 2 processes started by Kubernetes", step.title());
    assertRanks("LAUNCHED", "8", step);
  }

  @Test
  void taskWithOneVisibleGpuHasOneRank() {
    Step step = launched(1, "RANK", "0", "WORLD_SIZE", "16", "LOCAL_WORLD_SIZE", "8");
    assertRanks("LAUNCHED", "1", step);
  }

  @Test
  void groupsAndNamesSelectSteps() {
    assertTrue(EvidencePlan.selects(List.of(), "latency"));
    assertTrue(EvidencePlan.selects(List.of("latency", "contract"), "contract-four-ranks"));
    assertTrue(EvidencePlan.selects(List.of("bandwidth-sweep"), "bandwidth-sweep"));
    assertFalse(EvidencePlan.selects(List.of("bandwidth-sweep"), "bandwidth-shared"));
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
    Step withDebugLevel = steps(gpu("2.30.7", 1), Map.of("NCCL_DEBUG", "INFO")).get("latency");
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
    assertEquals("/out/prediction-tree-ll.nccl.%p", variables.get("NCCL_DEBUG_FILE"));
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
      assertEquals("" + rank, command.words().get(command.words().indexOf("--device") + 1));
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
        assertEquals(gpu.get(step.name()).deadline().multipliedBy(5), step.deadline());
        for (int i = 0; i < step.commands().size(); i++) {
          List<String> words =
              step.commands().get(i).words().stream()
                  .map(word -> word.replace("contract.Emulated", "contract."))
                  .toList();
          List<String> expected = new ArrayList<>(gpu.get(step.name()).commands().get(i).words());
          int deadline = expected.indexOf("--deadline") + 1;
          if (deadline > 0) {
            expected.set(deadline, "" + 5 * Integer.parseInt(expected.get(deadline)));
          }
          assertEquals(expected, words);
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
    String processes =
        steps(gpu("2.30.7", 2), Map.of("NCCL_TESTS_DIR", "/tests"))
            .get("nccl-tests-processes")
            .impossible();
    assertEquals("mpirun is not on the PATH", processes);
  }

  @Test
  void sharedCommunicatorNeedsPython() {
    Step step = steps(gpu("2.30.7", 1), Map.of("PATH", "/none")).get("cross-check-python");
    assertEquals("python3 is not on the PATH", step.impossible());
  }
}
