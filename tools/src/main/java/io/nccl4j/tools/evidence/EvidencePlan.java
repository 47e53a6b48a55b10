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
import java.util.regex.Pattern;
import java.util.stream.IntStream;

/**
 * Which steps there are, in their order, and how each is started on the machine at hand.
 *
 * <p>The seconds of a step are what it has however long the steps before it took; what those have
 * left is added. On one GPU they add up to 470, which {@code EvidencePlanTest} holds: with ten
 * seconds for the command itself all steps end within 8 minutes, even if every one of them hangs.
 */
final class EvidencePlan {
  /** What {@code --steps} takes for all steps whose names begin so, in the order of the steps. */
  static final List<String> GROUPS =
      List.of(
          "device", "prediction", "bandwidth", "latency", "nccl-tests", "cross-check", "contract");

  /** The step of a run that a launcher has started once for each rank. */
  static final String LAUNCHED = "bandwidth-launched";

  /** The names of all steps, in their order. */
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
   * More than the 8 connections of a CUDA context by default: streams of two ranks that share one
   * can wait for each other.
   */
  private static final String CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS";

  /** NCCL before 2.30 takes ranks that share a GPU only where it believes them on two hosts. */
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
          // Loading a kernel on first use can wait for the GPU, and so for a rank that comes later.
          "CUDA_MODULE_LOADING",
          "EAGER");

  /** A machine that was just started reads all libraries from a cold disk, Python's too. */
  private static final int FIRST_SECONDS = 40;

  /** Three are the fewest whose order shows; a power of two makes averages exact. */
  private static final int PREDICTED_RANKS = 4;

  /** Enough for every case of the contract suite. */
  private static final int MOST_CONTRACT_RANKS = 8;

  private static final String ONE_PROCESS_ALONE = "the stand-in's ranks are threads of one process";

  private final Path work;
  private final boolean quick;
  private final Map<String, String> environment;

  /**
   * Makes a plan.
   *
   * @param work a folder of this run alone
   * @param environment where variables such as PATH and NCCL_TESTS_DIR are looked up
   */
  EvidencePlan(Path work, boolean quick, Map<String, String> environment) {
    this.work = work;
    this.quick = quick;
    this.environment = environment;
  }

  /** Returns whether {@code --steps} takes a name. */
  static boolean knows(String name) {
    return GROUPS.contains(name) || NAMES.contains(name);
  }

  /** Returns whether what {@code --steps} was given has a step. */
  static boolean selects(List<String> chosen, String step) {
    return chosen.isEmpty()
        || chosen.stream()
            .anyMatch(
                name -> name.equals(step) || (GROUPS.contains(name) && step.startsWith(name)));
  }

  /** The step that finds out what the others depend on. */
  Step first() {
    return step(
        "device",
        "Device and libraries",
        FIRST_SECONDS,
        java("device", "process", Machine.NONE, Map.of(), List.of("device")));
  }

  /** The steps after the first, of a run that no launcher has started. */
  List<Step> rest(Machine machine) {
    List<Step> steps = new ArrayList<>();
    // All-reduces of up to 9 MB, 180 of them: about 10 s, and as much for NCCL to load all kernels.
    for (String protocol : List.of("Simple", "LL")) {
      for (String algorithm : List.of("Ring", "Tree")) {
        steps.add(prediction(machine, algorithm, protocol, 25));
      }
    }
    // A process for each collective, of some 6 s on one GPU; all_reduce comes first.
    steps.add(bandwidth(machine, machine.devices() > 1 ? 120 : 50));
    steps.add(bandwidthOfProcesses(machine, 90));
    steps.add(bandwidthShared(machine, 25));
    steps.add(sweep(machine, 130));
    // 20 rounds of 80,000 calls of a few microseconds each.
    steps.add(alone("latency", "Call latency, 1 rank", 20, machine, "latency"));
    // Two processes a collective and round; three rounds where there is time.
    steps.add(ncclTests(machine, machine.devices() > 1 ? 120 : 50));
    steps.add(ncclTestsOfProcesses(machine, 90));
    // Leaves out large counts for which there is no time.
    steps.add(alone("cross-check-one-process", "Cross-check, 1 rank", 25, machine, "cross-check"));
    steps.add(crossCheckOfProcesses(machine, 40));
    steps.add(interop(machine, 25));
    // Runs until its time is up, the most important topics first, and so has what others leave.
    steps.add(contract(machine, 50));
    steps.add(contractOfFourRanks(machine, 20));
    steps.add(
        sharing(
            "contract-two-processes",
            "Contract suite, 2 ranks in 2 processes on one GPU, through sockets",
            25,
            machine,
            2,
            Map.of(),
            "contract",
            "--suite",
            "io.nccl4j.contract.NcclContractTest"));
    return machine.usable()
        ? steps
        : steps.stream()
            .map(step -> impossible(step, "no usable GPU, see the first step"))
            .toList();
  }

  /** The step after the first, of a run that a launcher has started once for each rank. */
  Step launched(Machine machine, LaunchEnvironment launch) {
    // A launcher that does not say how many processes are on a host starts one on each.
    int gpus = Math.max(1, machine.devices() / launch.localSize().orElse(1));
    String title =
        "Bandwidth, %d ranks in %d processes started by %s"
            .formatted(gpus * launch.size(), launch.size(), launch.launcher());
    if (!machine.usable()) {
      return Step.notPossible(LAUNCHED, title, "no usable GPU, see the first step");
    }
    if (machine.standIn()) {
      return Step.notPossible(LAUNCHED, title, ONE_PROCESS_ALONE);
    }
    List<String> arguments = new ArrayList<>(List.of("bandwidth", "--size", "" + gpus));
    arguments.addAll(List.of("--layout", Bandwidth.Layout.LAUNCHED.name()));
    arguments.addAll(List.of("--rank", "" + launch.rank()));
    // One run of the launcher, but a meeting for each collective.
    Map<String, String> run = Map.of(Bandwidth.RUN, launch.jobId() + " evidence");
    return step(
        LAUNCHED, title, 240, java(LAUNCHED, "rank " + launch.rank(), machine, run, arguments));
  }

  private static Step impossible(Step step, String reason) {
    return Step.notPossible(step.name(), step.title(), reason);
  }

  private static Step step(String name, String title, int seconds, Step.Command... commands) {
    return Step.of(name, title, Duration.ofSeconds(seconds), commands);
  }

  private Step alone(String name, String title, int seconds, Machine machine, String program) {
    return step(name, title, seconds, java(name, "process", machine, Map.of(), List.of(program)));
  }

  private Step contract(Machine machine, int seconds) {
    int ranks = Math.min(machine.devices(), MOST_CONTRACT_RANKS);
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
      return Step.notPossible(name, title, "the contract's ranks have a GPU each, see above");
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
    String suite = machine.standIn() ? "StandInContractTest" : "NcclContractTest";
    List<String> arguments =
        List.of("contract", "--suite", "io.nccl4j.contract." + suite, "--size", "" + ranks);
    return step(name, title, seconds, java(name, "process", machine, variables, arguments));
  }

  private static String tooOldToShare(Machine machine) {
    return "several ranks of one process on one GPU need NCCL 2.30 or later, this is "
        + machine.nccl();
  }

  /** NCCL pinned to one way, and its log, which names the rings and trees that it goes. */
  private Step prediction(Machine machine, String algorithm, String protocol, int seconds) {
    String name = ("prediction-" + algorithm + "-" + protocol).toLowerCase(Locale.ROOT);
    String title =
        "Prediction of bits, %s with %s, %d ranks in "
            .formatted(algorithm, protocol, PREDICTED_RANKS);
    Map<String, String> variables = new LinkedHashMap<>();
    variables.put("NCCL_NVLS_ENABLE", "0");
    variables.put(Prediction.ALGORITHM, algorithm);
    variables.put(Prediction.PROTOCOL, protocol);
    variables.put("NCCL_DEBUG", "INFO");
    variables.put("NCCL_DEBUG_SUBSYS", "INIT");
    variables.put(Prediction.LOG, work.resolve(name + ".nccl" + Prediction.PROCESS).toString());
    boolean share = PREDICTED_RANKS > machine.devices();
    if (machine.standIn()) {
      return Step.notPossible(
          name, title + "one process", "the stand-in folds in the order of the ranks");
    }
    if (share && !machine.ncclAtLeast(2, 30)) {
      return sharing(
          name,
          title + "as many processes on one GPU, through sockets",
          seconds,
          machine,
          PREDICTED_RANKS,
          variables,
          "prediction");
    }
    Map<String, String> all = new LinkedHashMap<>(share ? RANKS_SHARE_A_GPU : Map.of());
    all.putAll(variables);
    return step(
        name,
        title + "one process" + (share ? " on one GPU" : ""),
        seconds,
        java(name, "process", machine, all, List.of("prediction", "--size", "" + PREDICTED_RANKS)));
  }

  /** Ranks in a process each that share the first GPU, and are to NCCL on a host each. */
  private Step sharing(
      String name,
      String title,
      int seconds,
      Machine machine,
      int ranks,
      Map<String, String> variables,
      String... program) {
    if (machine.standIn()) {
      return Step.notPossible(name, title, ONE_PROCESS_ALONE);
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
                  return rank(name, rank, ranks, 0, machine, all, program);
                })
            .toArray(Step.Command[]::new));
  }

  private Step.Command rank(
      String name,
      int rank,
      int ranks,
      int device,
      Machine machine,
      Map<String, String> variables,
      String... program) {
    List<String> arguments = new ArrayList<>(List.of(program));
    arguments.addAll(List.of("--rank", "" + rank, "--size", "" + ranks, "--device", "" + device));
    arguments.addAll(List.of("--meet", "" + work.resolve(name)));
    return java(name, "rank " + rank, machine, variables, arguments);
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
      return sharing(name, title, seconds, machine, 2, Map.of(), "cross-check");
    }
    return step(
        name,
        title,
        seconds,
        rank(name, 0, 2, 0, machine, Map.of(), "cross-check"),
        rank(name, 1, 2, 1, machine, Map.of(), "cross-check"));
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

  /** Returns how many ranks a title names; those of a machine without a GPU have no number. */
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
        ? Step.notPossible(name, title, ONE_PROCESS_ALONE)
        : withSeveral(
            machine,
            measured(name, title, seconds, machine, Bandwidth.Layout.PROCESSES, "bandwidth"));
  }

  private Step bandwidthShared(Machine machine, int seconds) {
    String name = "bandwidth-shared";
    String title = "Bandwidth, 2 ranks in 2 processes on one GPU, through sockets";
    return machine.devices() > 1 && !machine.standIn()
        ? Step.notPossible(name, title, "each rank has a GPU of its own, see above")
        : sharing(name, title, seconds, machine, 2, Map.of(), "peer-bandwidth");
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
        "Bandwidth beside nccl-tests, in turn, " + ranks(machine.devices()) + " in one process",
        seconds,
        machine,
        Bandwidth.Layout.ONE_PROCESS);
  }

  private Step ncclTestsOfProcesses(Machine machine, int seconds) {
    String name = "nccl-tests-processes";
    String title = "Bandwidth beside nccl-tests, in turn, a process for each GPU";
    if (machine.standIn()) {
      return Step.notPossible(name, title, ONE_PROCESS_ALONE);
    }
    Step step = ncclTests(name, title, seconds, machine, Bandwidth.Layout.PROCESSES);
    return withSeveral(
        machine,
        step.impossible() != null || onPath(NcclTests.MPIRUN)
            ? step
            : impossible(step, NcclTests.MPIRUN + " is not on the PATH"));
  }

  private Step ncclTests(
      String name, String title, int seconds, Machine machine, Bandwidth.Layout layout) {
    String folder = environment.get(NcclTests.VARIABLE);
    if (folder == null || folder.isBlank()) {
      return Step.notPossible(
          name, title, NcclTests.VARIABLE + " does not name a folder with its programs");
    }
    return measured(name, title, seconds, machine, layout, "nccl-tests", "--binaries", folder);
  }

  /** A step that starts the bandwidth command with a rank for each GPU. */
  private Step measured(
      String name,
      String title,
      int seconds,
      Machine machine,
      Bandwidth.Layout layout,
      String... program) {
    List<String> arguments = new ArrayList<>(List.of(program));
    arguments.addAll(List.of("--layout", layout.name(), "--size", "" + machine.devices()));
    return step(name, title, seconds, java(name, "process", machine, Map.of(), arguments));
  }

  private Step interop(Machine machine, int seconds) {
    String name = "cross-check-python";
    String title = "Java rank 0 and Python rank 1 in one communicator";
    if (machine.standIn()) {
      return Step.notPossible(name, title, ONE_PROCESS_ALONE);
    }
    if (!onPath("python3")) {
      return Step.notPossible(name, title, "python3 is not on the PATH");
    }
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
    return step(
        name,
        title,
        seconds,
        java(
            name,
            "rank 0 (Java)",
            machine,
            host(0),
            List.of("interop", "--rank", "0", "--size", "2", "--meet", id.toString())),
        new Step.Command("rank 1 (Python)", python, talking(host(1)), null));
  }

  /** Adds that NCCL says why something fails, unless the environment says what it prints. */
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

  /** Returns a process with the program of a step. */
  private Step.Command java(
      String name,
      String label,
      Machine machine,
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
    words.addAll(List.of("--report", report.toString()));
    if (quick) {
      words.add("--quick");
    }
    Map<String, String> all = talking(variables);
    all.put("CLASSPATH", Java.classPath());
    return new Step.Command(label, List.copyOf(words), all, report);
  }
}
