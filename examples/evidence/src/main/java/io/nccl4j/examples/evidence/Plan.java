package io.nccl4j.examples.evidence;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Pattern;

/** Which steps there are, in their order, and how each is started on the machine at hand. */
final class Plan {
  /** The names of all steps, in their order. */
  static final List<String> NAMES =
      List.of(
          "device",
          "cross-check-1",
          "contract-1",
          "cross-check-2-processes",
          "contract-2-processes",
          "interop",
          "bandwidth-1",
          "bandwidth-2-processes",
          "latency",
          "contract-2",
          "contract-4",
          "prediction-ring-simple",
          "prediction-ring-ll",
          "prediction-tree-simple",
          "prediction-tree-ll",
          "nccl-tests");

  /** NCCL before 2.30 takes ranks that share a GPU only where it believes them on two hosts. */
  private static final Map<String, String> AS_SEPARATE_HOSTS =
      Map.of(
          "NCCL_NET", "Socket",
          "NCCL_IB_DISABLE", "1",
          "NCCL_SOCKET_IFNAME", "lo",
          "NCCL_MNNVL_ENABLE", "0",
          "NCCL_NVLS_ENABLE", "0",
          "NCCL_MAX_CTAS", "2");

  private static final Map<String, String> RANKS_SHARE_A_GPU =
      Map.of(
          "NCCL_MULTI_RANK_GPU_ENABLE", "1",
          "NCCL_NVLS_ENABLE", "0",
          "NCCL_MAX_CTAS", "1",
          "NCCL_NET_GDR_LEVEL", "LOC",
          // Loading a kernel on first use can wait for the GPU, and so for a rank that comes later.
          "CUDA_MODULE_LOADING", "EAGER");

  /** A machine that was just started reads all libraries from a cold disk, Python's too. */
  private static final int FIRST_SECONDS = 60;

  /** Three are the fewest whose order shows; a power of two makes averages exact. */
  private static final int PREDICTED_RANKS = 4;

  private final Path work;
  private final boolean quick;
  private final Map<String, String> environment;

  /**
   * Makes a plan.
   *
   * @param work a folder of this run alone
   * @param environment where variables such as PATH and NCCL_TESTS_DIR are looked up
   */
  Plan(Path work, boolean quick, Map<String, String> environment) {
    this.work = work;
    this.quick = quick;
    this.environment = environment;
  }

  /** The step that finds out what the others depend on. */
  Step first() {
    return Step.of(
        "device",
        "Device and libraries",
        seconds(FIRST_SECONDS),
        java("device", "process", Machine.NONE, FIRST_SECONDS, Map.of(), List.of("device")));
  }

  /** The steps after the first. */
  List<Step> rest(Machine machine) {
    List<Step> steps = new ArrayList<>();
    steps.add(alone("cross-check-1", "Cross-check, 1 rank", 60, machine, "cross-check"));
    steps.add(contract(machine, 1, 150));
    steps.add(
        inTwoProcesses(
            "cross-check-2-processes",
            "Cross-check, 2 ranks in 2 processes on one GPU, through sockets",
            110,
            machine,
            "cross-check"));
    steps.add(
        inTwoProcesses(
            "contract-2-processes",
            "Contract suite, 2 ranks in 2 processes on one GPU, through sockets",
            110,
            machine,
            "contract",
            "--suite",
            "io.nccl4j.contract.NcclContractTest"));
    steps.add(interop(machine));
    steps.add(alone("bandwidth-1", "Bandwidth, 1 rank", 90, machine, "bandwidth"));
    steps.add(
        inTwoProcesses(
            "bandwidth-2-processes",
            "Bandwidth, 2 ranks in 2 processes on one GPU, through sockets",
            45,
            machine,
            "peer-bandwidth"));
    steps.add(alone("latency", "Call latency, 1 rank", 30, machine, "latency"));
    steps.add(contract(machine, 2, 120));
    steps.add(contract(machine, 4, 120));
    for (String algorithm : List.of("Ring", "Tree")) {
      for (String protocol : List.of("Simple", "LL")) {
        steps.add(prediction(machine, algorithm, protocol));
      }
    }
    steps.add(ncclTests(machine));
    return machine.usable()
        ? steps
        : steps.stream()
            .map(step -> impossible(step, "no usable GPU, see the first step"))
            .toList();
  }

  private static Step impossible(Step step, String reason) {
    return Step.notPossible(step.name(), step.title(), reason);
  }

  private Step alone(String name, String title, int seconds, Machine machine, String program) {
    return Step.of(
        name,
        title,
        seconds(seconds),
        java(name, "process", machine, seconds, Map.of(), List.of(program)));
  }

  private Step contract(Machine machine, int ranks, int seconds) {
    String name = "contract-" + ranks;
    boolean share = ranks > machine.devices();
    String title =
        "Contract suite, "
            + (ranks == 1 ? "1 rank" : ranks + " ranks in one process")
            + (share ? " on one GPU" : "");
    if (share && !machine.ncclAtLeast(2, 30)) {
      return Step.notPossible(name, title, tooOldToShare(machine));
    }
    Map<String, String> variables = new LinkedHashMap<>();
    if (machine.standIn()) {
      variables.put("NCCL4J_STANDIN_DEVICES", "" + ranks);
    } else if (share) {
      variables.putAll(RANKS_SHARE_A_GPU);
    }
    String suite = machine.standIn() ? "StandInContractTest" : "NcclContractTest";
    return Step.of(
        name,
        title,
        seconds(seconds),
        java(
            name,
            "process",
            machine,
            seconds,
            variables,
            List.of("contract", "--suite", "io.nccl4j.contract." + suite, "--size", "" + ranks)));
  }

  private static String tooOldToShare(Machine machine) {
    return "several ranks of one process on one GPU need NCCL 2.30 or later, this is "
        + machine.nccl();
  }

  /** NCCL pinned to one way, and its log, which names the rings and trees that it goes. */
  private Step prediction(Machine machine, String algorithm, String protocol) {
    String name = ("prediction-" + algorithm + "-" + protocol).toLowerCase(Locale.ROOT);
    boolean share = PREDICTED_RANKS > machine.devices();
    String title =
        "Prediction of bits, %s with %s, %d ranks in one process%s"
            .formatted(algorithm, protocol, PREDICTED_RANKS, share ? " on one GPU" : "");
    if (machine.standIn()) {
      return Step.notPossible(name, title, "the stand-in folds in the order of the ranks");
    }
    if (share && !machine.ncclAtLeast(2, 30)) {
      return Step.notPossible(name, title, tooOldToShare(machine));
    }
    Map<String, String> variables = new LinkedHashMap<>(share ? RANKS_SHARE_A_GPU : Map.of());
    variables.put("NCCL_NVLS_ENABLE", "0");
    variables.put(Prediction.ALGORITHM, algorithm);
    variables.put(Prediction.PROTOCOL, protocol);
    variables.put("NCCL_DEBUG", "INFO");
    variables.put("NCCL_DEBUG_SUBSYS", "INIT");
    variables.put(Prediction.LOG, work.resolve(name + ".nccl.log").toString());
    return Step.of(
        name,
        title,
        seconds(45),
        java(
            name,
            "process",
            machine,
            45,
            variables,
            List.of("prediction", "--size", "" + PREDICTED_RANKS)));
  }

  private Step inTwoProcesses(
      String name, String title, int seconds, Machine machine, String... program) {
    if (machine.standIn()) {
      return Step.notPossible(name, title, "the stand-in's ranks are threads of one process");
    }
    return Step.of(
        name,
        title,
        seconds(seconds),
        rank(name, 0, machine, seconds, program),
        rank(name, 1, machine, seconds, program));
  }

  private Step.Command rank(
      String name, int rank, Machine machine, int seconds, String... program) {
    List<String> arguments = new ArrayList<>(List.of(program));
    arguments.addAll(
        List.of("--rank", "" + rank, "--size", "2", "--meet", "" + work.resolve(name)));
    return java(name, "rank " + rank, machine, seconds, host(rank), arguments);
  }

  private static Map<String, String> host(int rank) {
    Map<String, String> variables = new LinkedHashMap<>(AS_SEPARATE_HOSTS);
    variables.put("NCCL_HOSTID", "nccl4j-evidence-" + rank);
    return variables;
  }

  private Step interop(Machine machine) {
    String name = "interop";
    String title = "Java rank 0 and Python rank 1 in one communicator";
    if (machine.standIn()) {
      return Step.notPossible(name, title, "the stand-in's ranks are threads of one process");
    }
    if (!onPath("python3")) {
      return Step.notPossible(name, title, "python3 is not on the PATH");
    }
    int seconds = 60;
    Path id = work.resolve("interop.id");
    List<String> python =
        List.of(
            "python3",
            work.resolve(Interop.SCRIPT).toString(),
            "--id",
            id.toString(),
            "--rank",
            "1",
            "--size",
            "2",
            "--deadline",
            "" + seconds,
            "--nccl",
            machine.ncclLibrary(),
            "--cudart",
            machine.cudartLibrary());
    return Step.of(
        name,
        title,
        seconds(seconds),
        java(
            name,
            "rank 0 (Java)",
            machine,
            seconds,
            host(0),
            List.of("interop", "--rank", "0", "--size", "2", "--meet", id.toString())),
        new Step.Command("rank 1 (Python)", python, talking(host(1)), null));
  }

  /** Adds that NCCL says why something fails, unless it was told otherwise. */
  private Map<String, String> talking(Map<String, String> variables) {
    Map<String, String> all = new LinkedHashMap<>(variables);
    if (!environment.containsKey("NCCL_DEBUG")) {
      all.putIfAbsent("NCCL_DEBUG", "WARN");
    }
    return all;
  }

  boolean onPath(String program) {
    return Pattern.compile(":")
        .splitAsStream(environment.getOrDefault("PATH", ""))
        .anyMatch(folder -> Files.isExecutable(Path.of(folder, program)));
  }

  private Step ncclTests(Machine machine) {
    String name = "nccl-tests";
    String title = "Bandwidth beside nccl-tests, in turn, 1 rank";
    String folder = environment.get(NcclTests.VARIABLE);
    if (folder == null || folder.isBlank()) {
      return Step.notPossible(
          name, title, NcclTests.VARIABLE + " does not name a folder with its programs");
    }
    return Step.of(
        name,
        title,
        seconds(100),
        java(name, "process", machine, 100, Map.of(), List.of("nccl-tests", "--binaries", folder)));
  }

  /** Returns a process with the program of a step. */
  private Step.Command java(
      String name,
      String label,
      Machine machine,
      int seconds,
      Map<String, String> variables,
      List<String> arguments) {
    Path report = work.resolve(name + "." + label.replace(' ', '-') + ".json");
    List<String> words =
        new ArrayList<>(
            Java.command(
                Child.class.getName(),
                "-Dio.nccl4j.nccl.library=" + machine.ncclLibrary(),
                "-Dio.nccl4j.cudart.library=" + machine.cudartLibrary(),
                StepRunner.crashFile(work)));
    words.removeIf(word -> word.endsWith(".library="));
    words.addAll(arguments);
    words.addAll(List.of("--report", report.toString(), "--deadline", "" + seconds));
    if (quick) {
      words.add("--quick");
    }
    Map<String, String> all = talking(variables);
    all.put("CLASSPATH", Java.classPath());
    return new Step.Command(label, List.copyOf(words), all, report);
  }

  private static Duration seconds(int seconds) {
    return Duration.ofSeconds(seconds);
  }
}
