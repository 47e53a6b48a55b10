package io.nccl4j.tools.evidence;

import io.nccl4j.tools.perf.Perf;
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
import java.util.stream.Stream;

/**
 * The steps, in order, and the commands that run them on a machine.
 *
 * <p>The seconds of a step are its guaranteed time; time that earlier steps did not use is added.
 * They sum to at most 470, which {@code EvidencePlanTest} checks: with ten seconds for the command
 * itself, all steps end within 8 minutes even if every one of them hangs.
 */
final class EvidencePlan {
  /** The groups that {@code --steps} accepts: prefixes of step names, in the order of the steps. */
  static final List<String> GROUPS =
      List.of("device", "prediction", "bandwidth", "nccl-tests", "cross-check", "contract");

  /** Those that training uses, and the simplest. */
  private static final List<String> COLLECTIVES =
      List.of("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv");

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

  /** At least three, so that the order matters; a power of two, so that averages are exact. */
  private static final int PREDICTED_RANKS = 4;

  /** Enough for every case of the contract suite. */
  private static final int MAX_CONTRACT_RANKS = 8;

  private static final String ONE_PROCESS_ONLY = "the stand-in's ranks are threads of one process";

  private final Path work;
  private final boolean quick;
  private final Map<String, String> environment;
  private final Machine machine;

  /**
   * Creates a plan.
   *
   * @param work a directory for this run only
   * @param environment the environment variables, such as PATH and NCCL_TESTS_DIR
   * @param machine what the first step found; {@link Machine#NONE} before it
   */
  EvidencePlan(Path work, boolean quick, Map<String, String> environment, Machine machine) {
    this.work = work;
    this.quick = quick;
    this.environment = environment;
    this.machine = machine;
  }

  /** Returns the names of all steps, in order. */
  static List<String> names() {
    EvidencePlan plan = new EvidencePlan(Path.of(""), false, Map.of(), Machine.NONE);
    return Stream.concat(Stream.of(plan.first()), plan.rest().stream()).map(Step::name).toList();
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
        child("device", "process", Map.of(), "device"));
  }

  /** Returns the steps after the first. */
  List<Step> rest() {
    List<Step> steps = new ArrayList<>();
    steps.add(nvidiaSmi());
    // 180 all-reduces of up to 9 MB take about 10 s, and loading all kernels as much again.
    for (String protocol : List.of("Simple", "LL")) {
      for (String algorithm : List.of("Ring", "Tree")) {
        steps.add(prediction(PREDICTED_RANKS, algorithm, protocol, 25));
      }
    }
    for (String collective : COLLECTIVES) {
      steps.add(bandwidth(collective, machine.devices() > 1 ? 12 : 7));
    }
    steps.add(bandwidthShared(25));
    // Two processes per collective and round; three rounds if time allows.
    steps.add(ncclTests(machine.devices() > 1 ? 65 : 50));
    // Skips large counts for lack of time.
    steps.add(
        step(
            "cross-check-one-process",
            "Cross-check, 1 rank",
            25,
            child("cross-check-one-process", "process", Map.of(), "cross-check")));
    steps.add(crossCheckOfProcesses(40));
    steps.add(interop(25));
    // Run until their time is up, the most important topics first, so they run after the others.
    steps.add(
        contract(
            "contract-nccl-features",
            "Registered memory, windows, one-sided operations, suspension and parameters",
            2,
            20,
            "--topics",
            "NcclFeatures"));
    steps.add(contract("contract-one-process", "Contract suite", MAX_CONTRACT_RANKS, 50));
    steps.add(contractOfFourRanks(20));
    steps.add(contractOfProcesses(25));
    String noGpu = "the first step found no usable GPU";
    return steps.stream()
        .map(step -> machine.usable() ? step : Step.notPossible(step.name(), step.title(), noGpu))
        .toList();
  }

  private static Step step(String name, String title, int seconds, Step.Command... commands) {
    return Step.of(name, title, Duration.ofSeconds(seconds), commands);
  }

  private Step nvidiaSmi() {
    String fields =
        "name,driver_version,vbios_version,pcie.link.gen.max,pcie.link.width.max,power.limit,"
            + "clocks.max.sm,clocks.max.memory,persistence_mode,compute_mode,mig.mode.current";
    Optional<Path> program = onPath("nvidia-smi", environment);
    List<String> words =
        List.of("" + program.orElse(null), "--query-gpu=" + fields, "--format=csv");
    return step(
            "device-nvidia-smi",
            "The driver's view of the devices",
            5,
            new Step.Command("nvidia-smi", words, Map.of(), null))
        .unless(program.isEmpty(), "nvidia-smi is not on the PATH");
  }

  /** Returns a step that compares all-reduces of one algorithm and protocol with the prediction. */
  Step prediction(int ranks, String algorithm, String protocol, int seconds) {
    String name = ("prediction-" + algorithm + "-" + protocol).toLowerCase(Locale.ROOT);
    String title = "Predicted bits, %s with %s, %d ranks in ".formatted(algorithm, protocol, ranks);
    Map<String, String> variables =
        Prediction.variables(algorithm, protocol, work.resolve(name + ".nccl"));
    boolean share = ranks > machine.devices();
    if (share && !machine.standIn() && !machine.ncclAtLeast(2, 30)) {
      title += "as many processes on one GPU, through sockets";
      return sharedGpuStep(name, title, seconds, ranks, variables, "prediction");
    }
    Map<String, String> all = new LinkedHashMap<>(share ? RANKS_SHARE_A_GPU : Map.of());
    all.putAll(variables);
    return step(
            name,
            title + "one process" + (share && !machine.standIn() ? " on one GPU" : ""),
            seconds,
            child(name, "process", all, "prediction", "--size", "" + ranks))
        .unless(machine.standIn(), "the stand-in reduces in rank order");
  }

  private Step bandwidth(String collective, int seconds) {
    int ranks = machine.devices();
    List<String> sizes = NcclTests.sizes(quick, ranks, collective.equals("all_reduce"));
    return step(
        "bandwidth-" + collective.replace('_', '-'),
        "Bandwidth, %s, %s in one process".formatted(collective, ranks(ranks)),
        seconds,
        perf("process", Map.of(), collective, ranks, sizes));
  }

  private Step bandwidthShared(int seconds) {
    String name = "bandwidth-shared";
    List<String> sizes =
        quick ? NcclTests.sizes(true, 2, false) : List.of("-b", "8", "-e", "16M", "-f", "8");
    return step(
            name,
            "Bandwidth, all_reduce, 2 ranks in 2 processes on one GPU, through sockets",
            seconds,
            IntStream.range(0, 2)
                .mapToObj(
                    rank -> perf("rank " + rank, onOneGpu(name, rank, 2), "all_reduce", 1, sizes))
                .toArray(Step.Command[]::new))
        .unless(machine.standIn(), ONE_PROCESS_ONLY)
        .unless(machine.devices() > 1, "each rank has its own GPU, see above");
  }

  private Step ncclTests(int seconds) {
    String name = "nccl-tests-one-process";
    String folder = environment.getOrDefault(NcclTests.VARIABLE, "");
    String gpus = "" + machine.devices();
    return step(
            name,
            "Bandwidth compared with nccl-tests, " + ranks(machine.devices()) + " in one process",
            seconds,
            child(name, "process", Map.of(), "nccl-tests", "--binaries", folder, "--size", gpus))
        .unless(folder.isBlank(), NcclTests.VARIABLE + " is not set");
  }

  private Step crossCheckOfProcesses(int seconds) {
    String name = "cross-check-two-processes";
    String title = "Cross-check, 2 ranks in 2 processes";
    if (machine.standIn() || machine.devices() < 2) {
      title += " on one GPU, through sockets";
      return sharedGpuStep(name, title, seconds, 2, Map.of(), "cross-check");
    }
    return step(
        name,
        title,
        seconds,
        child(name, "rank 0", rank(name, 0, 2, 0, 2), "cross-check"),
        child(name, "rank 1", rank(name, 1, 2, 1, 2), "cross-check"));
  }

  private Step interop(int seconds) {
    String name = "cross-check-python";
    Optional<Path> python3 = onPath("python3", environment);
    String id = work.resolve("interop.id").toString();
    List<String> python = new ArrayList<>();
    python.addAll(List.of("" + python3.orElse(null), work.resolve(Interop.SCRIPT).toString()));
    python.addAll(List.of("--id", id, "--rank", "1", "--size", "2"));
    python.addAll(List.of("--deadline", "" + seconds));
    python.addAll(List.of("--nccl", machine.ncclLibrary(), "--cudart", machine.cudartLibrary()));
    return step(
            name,
            "Java rank 0 and Python rank 1 in one communicator",
            seconds,
            child(name, "rank 0 (Java)", host(0), "interop", "--size", "2", "--meet", id),
            new Step.Command("rank 1 (Python)", python, withNcclWarnings(host(1)), null))
        .unless(machine.standIn(), ONE_PROCESS_ONLY)
        .unless(python3.isEmpty(), "python3 is not on the PATH");
  }

  /** Returns a contract run with as many ranks in one process as possible, but not more. */
  private Step contract(String name, String what, int mostRanks, int seconds, String... topics) {
    int ranks = Math.min(machine.devices(), mostRanks);
    boolean share = ranks < 2 && machine.ncclAtLeast(2, 30);
    if (machine.standIn() || share) {
      ranks = 2;
    }
    String title =
        what
            + (ranks == 1 ? ", 1 rank" : ", " + ranks(ranks) + " in one process")
            + (share && !machine.standIn() ? " on one GPU" : "");
    return contract(name, title, ranks, share, seconds, topics);
  }

  private Step contractOfFourRanks(int seconds) {
    boolean gpus = !machine.standIn();
    return contract(
            "contract-four-ranks",
            "Contract suite, 4 ranks in one process" + (gpus ? " on one GPU" : ""),
            4,
            true,
            seconds)
        .unless(
            gpus && machine.devices() > 1,
            "each rank of the contract suite has its own GPU, see above")
        .unless(
            gpus && !machine.ncclAtLeast(2, 30),
            "several ranks of one process on one GPU need NCCL 2.30 or later, this is "
                + machine.nccl());
  }

  private Step contract(
      String name, String title, int ranks, boolean share, int seconds, String... topics) {
    Map<String, String> variables = share && !machine.standIn() ? RANKS_SHARE_A_GPU : Map.of();
    if (machine.standIn()) {
      variables = Map.of("NCCL4J_STANDIN_DEVICES", "" + ranks);
    }
    List<String> program = new ArrayList<>(List.of("contract", "--suite", suite()));
    program.addAll(List.of("--size", "" + ranks));
    program.addAll(List.of(topics));
    return step(
        name, title, seconds, child(name, "process", variables, program.toArray(String[]::new)));
  }

  private Step contractOfProcesses(int seconds) {
    String name = "contract-two-processes";
    return sharedGpuStep(
        name,
        "Contract suite, 2 ranks in 2 processes on one GPU, through sockets",
        seconds,
        2,
        Map.of(),
        "contract",
        "--suite",
        suite(),
        "--meet",
        work.resolve(name + "-ids").toString());
  }

  private String suite() {
    return "io.nccl4j.contract." + (machine.standIn() ? "StandIn" : "Nccl") + "ContractTest";
  }

  /** Returns the number of ranks for a title; it is unknown on a machine without a GPU. */
  private static String ranks(int count) {
    return switch (count) {
      case 0 -> "all ranks";
      case 1 -> "1 rank";
      default -> count + " ranks";
    };
  }

  /** One process per rank; the ranks share the first GPU and appear to be on different hosts. */
  private Step sharedGpuStep(
      String name,
      String title,
      int seconds,
      int ranks,
      Map<String, String> variables,
      String... program) {
    return step(
            name,
            title,
            seconds,
            IntStream.range(0, ranks)
                .mapToObj(
                    rank -> {
                      Map<String, String> all = onOneGpu(name, rank, ranks);
                      all.putAll(variables);
                      return child(name, "rank " + rank, all, program);
                    })
                .toArray(Step.Command[]::new))
        .unless(machine.standIn(), ONE_PROCESS_ONLY);
  }

  private Map<String, String> onOneGpu(String step, int rank, int ranks) {
    Map<String, String> variables = host(rank);
    variables.putAll(rank(step, rank, ranks, 0, 1));
    return variables;
  }

  private static Map<String, String> host(int rank) {
    Map<String, String> variables = new LinkedHashMap<>(AS_SEPARATE_HOSTS);
    variables.put("NCCL_HOSTID", "nccl4j-evidence-" + rank);
    return variables;
  }

  /** Returns the variables of one of the processes of a step, which meet in a directory. */
  private Map<String, String> rank(
      String step, int rank, int ranks, int localRank, int localRanks) {
    return Map.of(
        "NCCL4J_RANK",
        "" + rank,
        "NCCL4J_WORLD_SIZE",
        "" + ranks,
        "NCCL4J_LOCAL_RANK",
        "" + localRank,
        "NCCL4J_LOCAL_WORLD_SIZE",
        "" + localRanks,
        "NCCL4J_RENDEZVOUS",
        "file:" + work.resolve(step).toUri().getRawPath());
  }

  private Step.Command perf(
      String label,
      Map<String, String> variables,
      String collective,
      int ranks,
      List<String> sizes) {
    List<String> arguments =
        new ArrayList<>(List.of(collective, "--backend", "nccl", "-g", "" + ranks));
    arguments.addAll(sizes);
    return command(label, variables, Perf.class.getName(), arguments);
  }

  /** Returns the command of a process whose output is its result. */
  private Step.Command command(
      String label, Map<String, String> variables, String mainClass, List<String> arguments) {
    List<String> words = new ArrayList<>(Java.command(mainClass, flags()));
    words.addAll(arguments);
    Map<String, String> all = withNcclWarnings(variables);
    all.put("CLASSPATH", Java.classPath());
    return new Step.Command(label, List.copyOf(words), all, null);
  }

  /** Returns the command of a process that runs a program of {@link Child}. */
  private Step.Command child(
      String step, String label, Map<String, String> variables, String... program) {
    Path report = work.resolve(step + "." + label.replace(' ', '-') + ".json");
    List<String> arguments = new ArrayList<>(List.of(program));
    arguments.addAll(List.of("--report", report.toString()));
    if (quick) {
      arguments.add("--quick");
    }
    Step.Command command = command(label, variables, Child.class.getName(), arguments);
    return new Step.Command(label, command.words(), command.environment(), report);
  }

  private String[] flags() {
    List<String> flags = new ArrayList<>();
    if (machine.usable()) {
      flags.add("-Dio.nccl4j.nccl.library=" + machine.ncclLibrary());
      flags.add("-Dio.nccl4j.cudart.library=" + machine.cudartLibrary());
    }
    flags.add(StepRunner.crashFile(work));
    return flags.toArray(String[]::new);
  }

  /** Adds the variable that has NCCL print why a call fails, unless it is already set. */
  private Map<String, String> withNcclWarnings(Map<String, String> variables) {
    Map<String, String> all = new LinkedHashMap<>(variables);
    if (!environment.containsKey("NCCL_DEBUG")) {
      all.putIfAbsent("NCCL_DEBUG", "WARN");
    }
    return all;
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
}
