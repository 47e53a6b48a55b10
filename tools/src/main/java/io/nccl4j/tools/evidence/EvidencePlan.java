package io.nccl4j.tools.evidence;

import io.nccl4j.rendezvous.LaunchEnvironment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.regex.Pattern;
import java.util.stream.IntStream;

/**
 * The steps, in order, and the commands that run them on a machine.
 *
 * <p>The seconds of a step are its guaranteed time; time that earlier steps did not use is added.
 * On one GPU they sum to at most 470, which {@code EvidencePlanTest} checks: with ten seconds for
 * the command itself, all steps end within 8 minutes even if every one of them hangs.
 */
final class EvidencePlan {
  /** The groups that {@code --steps} accepts: prefixes of step names, in the order of the steps. */
  static final List<String> GROUPS =
      List.of(
          "device", "prediction", "bandwidth", "latency", "nccl-tests", "cross-check", "contract");

  /** The step of a run that a launcher starts once for each rank. */
  static final String LAUNCHED = "bandwidth-launched";

  /** The names of all steps, in order. */
  static final List<String> NAMES =
      List.of(
          "device",
          "prediction-ring-simple",
          "prediction-tree-simple",
          "prediction-ring-ll",
          "prediction-tree-ll",
          "bandwidth-one-process",
          "bandwidth-processes",
          "bandwidth-shared",
          "bandwidth-sweep",
          LAUNCHED,
          "latency",
          "nccl-tests-one-process",
          "nccl-tests-processes",
          "cross-check-one-process",
          "cross-check-two-processes",
          "cross-check-python",
          "contract-one-process",
          "contract-four-ranks",
          "contract-two-processes");

  /**
   * The number of hardware queues of a CUDA context. With the default of 8, streams of two ranks
   * may share a queue and wait for each other.
   */
  private static final String CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS";

  /** Before 2.30, NCCL accepts ranks that share a GPU only if they appear to be on two hosts. */
  private static final Map<String, String> AS_SEPARATE_HOSTS =
      Map.of(
          "NCCL_NET",
          "Socket",
          "NCCL_IB_DISABLE",
          "1",
          "NCCL_SOCKET_IFNAME",
          "lo",
          "NCCL_MNNVL_ENABLE",
          "0",
          "NCCL_NVLS_ENABLE",
          "0",
          "NCCL_MAX_CTAS",
          "2",
          CONNECTIONS,
          "32");

  private static final Map<String, String> RANKS_SHARE_A_GPU =
      Map.of(
          "NCCL_MULTI_RANK_GPU_ENABLE",
          "1",
          "NCCL_NVLS_ENABLE",
          "0",
          "NCCL_MAX_CTAS",
          "1",
          "NCCL_NET_GDR_LEVEL",
          "LOC",
          CONNECTIONS,
          "32",
          // Lazy loading of a kernel can wait for the GPU, and so for a rank that starts later.
          "CUDA_MODULE_LOADING",
          "EAGER");

  /** Enough to read all libraries, including Python's, from a cold disk. */
  private static final int FIRST_SECONDS = 40;

  /** How many times as long as on a GPU a step may take on processors, which may be busy. */
  private static final int EMULATION_FACTOR = 5;

  /** At least three, so that the order matters; a power of two, so that averages are exact. */
  private static final int PREDICTED_RANKS = 4;

  /** Enough for every case of the contract suite. */
  private static final int MAX_CONTRACT_RANKS = 8;

  private static final String ONE_PROCESS_ONLY = "the stand-in's ranks are threads of one process";

  private final Path work;
  private final boolean quick;
  private final Map<String, String> environment;

  /**
   * Creates a plan.
   *
   * @param work a directory for this run only
   * @param environment the environment variables, such as PATH and NCCL_TESTS_DIR
   */
  EvidencePlan(Path work, boolean quick, Map<String, String> environment) {
    this.work = work;
    this.quick = quick;
    this.environment = environment;
  }

  /** Returns whether {@code --steps} accepts a name. */
  static boolean knows(String name) {
    return GROUPS.contains(name) || NAMES.contains(name);
  }

  /** Returns whether the arguments of {@code --steps} select a step. */
  static boolean selects(List<String> selection, String step) {
    return selection.isEmpty()
        || selection.stream()
            .anyMatch(
                name -> name.equals(step) || (GROUPS.contains(name) && step.startsWith(name)));
  }

  /** Returns the first step, whose results the others depend on. */
  Step first() {
    return step(
        "device",
        "Device and libraries",
        FIRST_SECONDS,
        children(Machine.NONE).process("device", "process", Map.of(), List.of("device")));
  }

  /** Returns the steps after the first of a run without a launcher. */
  List<Step> rest(Machine machine) {
    List<Step> steps = new ArrayList<>();
    // 180 all-reduces of up to 9 MB take about 10 s, and loading all kernels as much again.
    for (String protocol : List.of("Simple", "LL")) {
      for (String algorithm : List.of("Ring", "Tree")) {
        steps.add(prediction(machine, PREDICTED_RANKS, algorithm, protocol, 25));
      }
    }
    // A process for each collective, about 6 s on one GPU; all_reduce runs first.
    steps.add(bandwidth(machine, machine.devices() > 1 ? 120 : 50));
    steps.add(bandwidthOfProcesses(machine, 90));
    steps.add(bandwidthShared(machine, 25));
    steps.add(sweep(machine, 130));
    // 20 rounds of 80,000 calls of a few microseconds each.
    steps.add(singleProcess("latency", "Call latency, 1 rank", 20, machine, "latency"));
    // Two processes per collective and round; three rounds if time allows.
    steps.add(ncclTests(machine, machine.devices() > 1 ? 120 : 50));
    steps.add(ncclTestsOfProcesses(machine, 90));
    // Skips large counts for lack of time.
    steps.add(
        singleProcess(
            "cross-check-one-process", "Cross-check, 1 rank", 25, machine, "cross-check"));
    steps.add(crossCheckOfProcesses(machine, 40));
    steps.add(interop(machine, 25));
    // Runs until its time is up, the most important topics first, so it runs after the others.
    steps.add(contract(machine, 50));
    steps.add(contractOfFourRanks(machine, 20));
    steps.add(
        sharedGpuStep(
            "contract-two-processes",
            "Contract suite, 2 ranks in 2 processes on one GPU, through sockets",
            25,
            machine,
            2,
            Map.of(),
            "contract",
            "--suite",
            suite(machine)));
    return machine.usable()
        ? steps.stream()
            .map(step -> step.withDeadline(step.deadline().multipliedBy(factor(machine))))
            .toList()
        : steps.stream()
            .map(step -> impossible(step, "the first step found no usable GPU"))
            .toList();
  }

  /** Returns how many times as long as on a GPU the steps may take. */
  private static int factor(Machine machine) {
    return machine.libraries() == Libraries.EMULATED_CUDA ? EMULATION_FACTOR : 1;
  }

  /** Returns the step after the first of a run that a launcher starts once for each rank. */
  Step launched(Machine machine, LaunchEnvironment launch) {
    // A launcher that sets no local size starts one process per host.
    int gpus = Math.max(1, machine.devices() / launch.localSize().orElse(1));
    String title =
        "Bandwidth, %d ranks in %d processes started by %s"
            .formatted(gpus * launch.size(), launch.size(), launch.launcher());
    if (!machine.usable()) {
      return Step.notPossible(LAUNCHED, title, "the first step found no usable GPU");
    }
    if (machine.standIn()) {
      return Step.notPossible(LAUNCHED, title, ONE_PROCESS_ONLY);
    }
    List<String> arguments = new ArrayList<>(List.of("bandwidth", "--size", "" + gpus));
    arguments.addAll(List.of("--layout", Bandwidth.Layout.LAUNCHED.name()));
    arguments.addAll(List.of("--rank", "" + launch.rank()));
    // One run of the launcher, but one rendezvous for each collective.
    Map<String, String> run = Map.of(Bandwidth.RUN, launch.jobId() + " evidence");
    return step(
        LAUNCHED,
        title,
        240 * factor(machine),
        children(machine).process(LAUNCHED, "rank " + launch.rank(), run, arguments));
  }

  private static Step impossible(Step step, String reason) {
    return Step.notPossible(step.name(), step.title(), reason);
  }

  private static Step step(String name, String title, int seconds, Step.Command... commands) {
    return Step.of(name, title, Duration.ofSeconds(seconds), commands);
  }

  private Step singleProcess(
      String name, String title, int seconds, Machine machine, String program) {
    return step(
        name,
        title,
        seconds,
        children(machine).process(name, "process", Map.of(), List.of(program)));
  }

  private Step contract(Machine machine, int seconds) {
    int ranks = Math.min(machine.devices(), MAX_CONTRACT_RANKS);
    boolean share = ranks < 2 && machine.ncclAtLeast(2, 30);
    if (machine.standIn() || share) {
      ranks = 2;
    }
    String title =
        "Contract suite, "
            + (ranks == 1 ? "1 rank" : ranks(ranks) + " in one process")
            + (share && !machine.standIn() ? " on one GPU" : "");
    return contract("contract-one-process", title, machine, ranks, share, seconds);
  }

  private Step contractOfFourRanks(Machine machine, int seconds) {
    String name = "contract-four-ranks";
    String title = "Contract suite, 4 ranks in one process";
    if (machine.standIn()) {
      return contract(name, title, machine, 4, false, seconds);
    }
    title += " on one GPU";
    if (machine.devices() > 1) {
      return Step.notPossible(
          name, title, "each rank of the contract suite has its own GPU, see above");
    }
    return machine.ncclAtLeast(2, 30)
        ? contract(name, title, machine, 4, true, seconds)
        : Step.notPossible(name, title, tooOldToShare(machine));
  }

  private Step contract(
      String name, String title, Machine machine, int ranks, boolean share, int seconds) {
    Map<String, String> variables = share && !machine.standIn() ? RANKS_SHARE_A_GPU : Map.of();
    if (machine.standIn()) {
      variables = Map.of("NCCL4J_STANDIN_DEVICES", "" + ranks);
    }
    List<String> arguments = List.of("contract", "--suite", suite(machine), "--size", "" + ranks);
    return step(
        name, title, seconds, children(machine).process(name, "process", variables, arguments));
  }

  private static String suite(Machine machine) {
    return "io.nccl4j.contract."
        + switch (machine.libraries()) {
          case NVIDIA -> "NcclContractTest";
          case EMULATED_CUDA -> "EmulatedNcclContractTest";
          case STAND_IN -> "StandInContractTest";
        };
  }

  private static String tooOldToShare(Machine machine) {
    return "several ranks of one process on one GPU need NCCL 2.30 or later, this is "
        + machine.nccl();
  }

  /** Returns a step that compares all-reduces of one algorithm and protocol with the prediction. */
  Step prediction(Machine machine, int ranks, String algorithm, String protocol, int seconds) {
    String name = ("prediction-" + algorithm + "-" + protocol).toLowerCase(Locale.ROOT);
    String title =
        "Predicted bits, %s with %s, %d ranks in ".formatted(algorithm, protocol, ranks);
    Map<String, String> variables =
        Prediction.variables(algorithm, protocol, work.resolve(name + ".nccl"));
    boolean share = ranks > machine.devices();
    if (machine.standIn()) {
      return Step.notPossible(name, title + "one process", "the stand-in reduces in rank order");
    }
    if (share && !machine.ncclAtLeast(2, 30)) {
      return sharedGpuStep(
          name,
          title + "as many processes on one GPU, through sockets",
          seconds,
          machine,
          ranks,
          variables,
          "prediction");
    }
    Map<String, String> all = new LinkedHashMap<>(share ? RANKS_SHARE_A_GPU : Map.of());
    all.putAll(variables);
    return step(
        name,
        title + "one process" + (share ? " on one GPU" : ""),
        seconds,
        children(machine)
            .process(name, "process", all, List.of("prediction", "--size", "" + ranks)));
  }

  /** One process per rank; the ranks share the first GPU and appear to be on different hosts. */
  private Step sharedGpuStep(
      String name,
      String title,
      int seconds,
      Machine machine,
      int ranks,
      Map<String, String> variables,
      String... program) {
    if (machine.standIn()) {
      return Step.notPossible(name, title, ONE_PROCESS_ONLY);
    }
    return step(
        name,
        title,
        seconds,
        IntStream.range(0, ranks)
            .mapToObj(
                rank -> {
                  Map<String, String> all = host(rank);
                  all.putAll(variables);
                  return children(machine).rank(name, rank, ranks, 0, all, List.of(program));
                })
            .toArray(Step.Command[]::new));
  }

  private static Map<String, String> host(int rank) {
    Map<String, String> variables = new LinkedHashMap<>(AS_SEPARATE_HOSTS);
    variables.put("NCCL_HOSTID", "nccl4j-evidence-" + rank);
    return variables;
  }

  private Step crossCheckOfProcesses(Machine machine, int seconds) {
    String name = "cross-check-two-processes";
    String title = "Cross-check, 2 ranks in 2 processes";
    if (machine.standIn() || machine.devices() < 2) {
      title += " on one GPU, through sockets";
      return sharedGpuStep(name, title, seconds, machine, 2, Map.of(), "cross-check");
    }
    return step(
        name,
        title,
        seconds,
        children(machine).rank(name, 0, 2, 0, Map.of(), List.of("cross-check")),
        children(machine).rank(name, 1, 2, 1, Map.of(), List.of("cross-check")));
  }

  private Step bandwidth(Machine machine, int seconds) {
    return measured(
        "bandwidth-one-process",
        "Bandwidth, " + ranks(machine.devices()) + " in one process",
        seconds,
        machine,
        Bandwidth.Layout.ONE_PROCESS,
        "bandwidth");
  }

  /** Returns the number of ranks for a title; it is unknown on a machine without a GPU. */
  private static String ranks(int count) {
    return switch (count) {
      case 0 -> "all ranks";
      case 1 -> "1 rank";
      default -> count + " ranks";
    };
  }

  private Step bandwidthOfProcesses(Machine machine, int seconds) {
    String name = "bandwidth-processes";
    String title = "Bandwidth, a process for each GPU";
    return machine.standIn()
        ? Step.notPossible(name, title, ONE_PROCESS_ONLY)
        : withSeveral(
            machine,
            measured(name, title, seconds, machine, Bandwidth.Layout.PROCESSES, "bandwidth"));
  }

  private Step bandwidthShared(Machine machine, int seconds) {
    String name = "bandwidth-shared";
    String title = "Bandwidth, 2 ranks in 2 processes on one GPU, through sockets";
    return machine.devices() > 1 && !machine.standIn()
        ? Step.notPossible(name, title, "each rank has its own GPU, see above")
        : sharedGpuStep(name, title, seconds, machine, 2, Map.of(), "peer-bandwidth");
  }

  private Step sweep(Machine machine, int seconds) {
    return withSeveral(
        machine,
        measured(
            "bandwidth-sweep",
            "Every algorithm with every protocol, " + ranks(machine.devices()) + " in one process",
            seconds,
            machine,
            Bandwidth.Layout.ONE_PROCESS,
            "sweep",
            "--page",
            work.resolve("sweep.html").toString()));
  }

  private static Step withSeveral(Machine machine, Step step) {
    return machine.devices() > 1
        ? step
        : impossible(step, "needs several GPUs, this machine has " + machine.devices());
  }

  private Step ncclTests(Machine machine, int seconds) {
    return ncclTests(
        "nccl-tests-one-process",
        "Bandwidth compared with nccl-tests, " + ranks(machine.devices()) + " in one process",
        seconds,
        machine,
        Bandwidth.Layout.ONE_PROCESS);
  }

  private Step ncclTestsOfProcesses(Machine machine, int seconds) {
    String name = "nccl-tests-processes";
    String title = "Bandwidth compared with nccl-tests, a process for each GPU";
    if (machine.standIn()) {
      return Step.notPossible(name, title, ONE_PROCESS_ONLY);
    }
    Step step = ncclTests(name, title, seconds, machine, Bandwidth.Layout.PROCESSES);
    return withSeveral(
        machine,
        step.impossible() != null || onPath(NcclTests.MPIRUN, environment).isPresent()
            ? step
            : impossible(step, NcclTests.MPIRUN + " is not on the PATH"));
  }

  private Step ncclTests(
      String name, String title, int seconds, Machine machine, Bandwidth.Layout layout) {
    String folder = environment.get(NcclTests.VARIABLE);
    if (folder == null || folder.isBlank()) {
      return Step.notPossible(name, title, NcclTests.VARIABLE + " is not set");
    }
    return measured(name, title, seconds, machine, layout, "nccl-tests", "--binaries", folder);
  }

  /** Returns a step that runs the bandwidth command with a rank for each GPU. */
  private Step measured(
      String name,
      String title,
      int seconds,
      Machine machine,
      Bandwidth.Layout layout,
      String... program) {
    List<String> arguments = new ArrayList<>(List.of(program));
    arguments.addAll(List.of("--layout", layout.name(), "--size", "" + machine.devices()));
    return step(
        name, title, seconds, children(machine).process(name, "process", Map.of(), arguments));
  }

  private Step interop(Machine machine, int seconds) {
    String name = "cross-check-python";
    String title = "Java rank 0 and Python rank 1 in one communicator";
    if (machine.standIn()) {
      return Step.notPossible(name, title, ONE_PROCESS_ONLY);
    }
    Optional<Path> python3 = onPath("python3", environment);
    if (python3.isEmpty()) {
      return Step.notPossible(name, title, "python3 is not on the PATH");
    }
    Path id = work.resolve("interop.id");
    List<String> python =
        List.of(
            python3.get().toString(),
            work.resolve(Interop.SCRIPT).toString(),
            "--id",
            id.toString(),
            "--rank",
            "1",
            "--size",
            "2",
            "--deadline",
            "" + seconds * factor(machine),
            "--nccl",
            machine.ncclLibrary(),
            "--cudart",
            machine.cudartLibrary());
    return step(
        name,
        title,
        seconds,
        children(machine)
            .process(
                name,
                "rank 0 (Java)",
                host(0),
                List.of("interop", "--rank", "0", "--size", "2", "--meet", id.toString())),
        new Step.Command(
            "rank 1 (Python)", python, children(machine).withNcclWarnings(host(1)), null));
  }

  /**
   * Returns the program's file. Relative folders of the PATH are skipped: they depend on the
   * current directory, where others may have put a program of that name.
   */
  static Optional<Path> onPath(String program, Map<String, String> environment) {
    return Pattern.compile(":")
        .splitAsStream(environment.getOrDefault("PATH", ""))
        .map(folder -> Path.of(folder, program))
        .filter(file -> file.isAbsolute() && Files.isExecutable(file))
        .findFirst();
  }

  private ChildCommands children(Machine machine) {
    return new ChildCommands(
        work, machine.ncclLibrary(), machine.cudartLibrary(), quick, environment);
  }
}
