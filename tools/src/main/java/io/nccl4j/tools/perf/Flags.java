package io.nccl4j.tools.perf;

import io.nccl4j.Backend;
import io.nccl4j.Device;
import io.nccl4j.Platform;
import io.nccl4j.tools.processes.Processes;
import io.nccl4j.tools.quantities.OptionValue;
import java.nio.file.Path;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.function.Consumer;
import java.util.stream.IntStream;
import picocli.CommandLine.Command;
import picocli.CommandLine.ITypeConverter;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;
import picocli.CommandLine.TypeConversionException;

/** The command line: nccl-tests' flags, and a few of our own. */
@Command(
    name = "perf",
    sortOptions = false,
    usageHelpWidth = 100,
    customSynopsis = "scripts/perf COLLECTIVE [flags]",
    header = "Measures the bandwidth of a collective, and checks its data.",
    description = {
      "COLLECTIVE is one of all_reduce, all_gather, reduce_scatter, broadcast, reduce, alltoall, gather, scatter, sendrecv.",
      "Flags, lines and columns are those of nccl-tests 2.19. A SIZE is in bytes, or has K, M or G (1024-based)."
    },
    footer = {
      "",
      "Ranks: with neither -t, -g nor --ranks, one for each GPU, or on the reference backend one for each",
      "processor and at least two; there at most 128 for each processor.",
      "Processes: with --procs, or where mpirun, torchrun --no-python, srun, or RANK and WORLD_SIZE say",
      "that this is one of several, -t, -g and --ranks count for each process, which else has one rank.",
      "Process 0 prints.",
      "Exit status: 0 fine, 1 a library or a device failed, 2 bad arguments, 3 wrong data, 4 time-out."
    })
final class Flags {
  /** What carries out the collectives. */
  enum BackendChoice {
    AUTO,
    NCCL,
    REFERENCE
  }

  /** How an all-reduce is carried out. */
  enum AlgorithmChoice {
    AUTO,
    RING,
    TREE,
    DIRECT
  }

  @Parameters(
      index = "0",
      arity = "0..1",
      paramLabel = "COLLECTIVE",
      hidden = true,
      converter = CollectiveName.class)
  Collective collective;

  @Option(
      names = "--backend",
      paramLabel = "NAME",
      defaultValue = "auto",
      converter = BackendName.class,
      description = "auto (NCCL where a GPU is usable), nccl or reference; default auto")
  BackendChoice backend;

  @Option(
      names = "--algo",
      paramLabel = "NAME",
      defaultValue = "auto",
      converter = AlgorithmName.class,
      description =
          "ring, tree, direct (on the reference backend) or auto; for NCCL, scripts/perf sets NCCL_ALGO; default auto")
  AlgorithmChoice algorithm;

  @Option(
      names = "--ranks",
      paramLabel = "N",
      converter = OptionValue.Whole.class,
      description = "how many ranks, in all threads of a process together")
  Integer ranks;

  @Option(
      names = "--procs",
      paramLabel = "N",
      converter = OptionValue.Whole.class,
      description =
          "start N processes of this command on this host. Without -t, -g and --ranks each has one rank; 1 process has those of a run without --procs")
  Integer procs;

  @Option(
      names = "--limit",
      paramLabel = "SECONDS",
      converter = OptionValue.Whole.class,
      description = "with --procs, the longest that all may take; default: no limit")
  Integer limit;

  @Option(
      names = "--child",
      hidden = true,
      description = "this process was started by --procs, and ends with the one that did")
  boolean child;

  @Option(
      names = {"-t", "--nthreads"},
      paramLabel = "N",
      converter = OptionValue.Whole.class,
      description = "threads that enqueue; default 1")
  Integer threads;

  @Option(
      names = {"-g", "--ngpus"},
      paramLabel = "N",
      converter = OptionValue.Whole.class,
      description = "ranks of each thread: GPUs, or devices of the reference backend")
  Integer ngpus;

  @Option(
      names = {"-b", "--minbytes"},
      paramLabel = "SIZE",
      defaultValue = "32M",
      converter = OptionValue.Size.class,
      description = "the first size; default 32M")
  long minBytes;

  @Option(
      names = {"-e", "--maxbytes"},
      paramLabel = "SIZE",
      defaultValue = "32M",
      converter = OptionValue.Size.class,
      description = "the last size; default 32M")
  long maxBytes;

  @Option(
      names = {"-i", "--stepbytes"},
      paramLabel = "SIZE",
      converter = OptionValue.Size.class,
      description = "what is added to a size for the next; default 1M")
  Long stepBytes;

  @Option(
      names = {"-f", "--stepfactor"},
      paramLabel = "N",
      converter = OptionValue.Whole.class,
      description =
          "what a size is multiplied with for the next; 2 or more, and then -i does not count")
  Integer stepFactor;

  @Option(
      names = {"-n", "--iters"},
      paramLabel = "N",
      defaultValue = "20",
      converter = OptionValue.Whole.class,
      description = "timed iterations; default 20")
  int iterations;

  @Option(
      names = {"-m", "--agg_iters"},
      paramLabel = "N",
      defaultValue = "1",
      converter = OptionValue.Whole.class,
      description =
          "operations of one iteration, launched as one group, each in memory of its own; default 1")
  int aggregated;

  @Option(
      names = {"-w", "--warmup_iters"},
      paramLabel = "N",
      defaultValue = "1",
      converter = OptionValue.Whole.class,
      description = "iterations before, for each size; default 1")
  int warmup;

  @Option(
      names = "--no-jit-warmup",
      description =
          "leave out the operations that run before a table until the JVM has compiled what they take; -w 0 leaves them out too")
  boolean noJitWarmup;

  @Option(
      names = {"-N", "--run_cycles"},
      paramLabel = "N",
      defaultValue = "1",
      converter = OptionValue.Whole.class,
      description = "how often the whole table is run, 0 for ever; default 1")
  int cycles;

  @Option(
      names = {"-p", "--parallel_init"},
      paramLabel = "0|1",
      defaultValue = "0",
      converter = OptionValue.Whole.class,
      description = "each thread makes its own communicators; default 0")
  int parallelInit;

  @Option(
      names = {"-c", "--check"},
      paramLabel = "N",
      defaultValue = "1",
      converter = OptionValue.Whole.class,
      description = "how often the data of each row is checked, 0 for not; default 1")
  int checks;

  @Option(
      names = {"-o", "--op"},
      paramLabel = "NAME",
      defaultValue = "sum",
      converter = OperatorName.class,
      description = "sum, prod, max, min, avg, mulsum or all; default sum")
  Operators operators;

  @Option(
      names = {"-d", "--datatype"},
      paramLabel = "NAME",
      defaultValue = "float",
      converter = TypeName.class,
      description =
          "int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16, f8e4m3, f8e5m2 or all; default float")
  Types types;

  @Option(
      names = {"-r", "--root"},
      paramLabel = "N",
      defaultValue = "0",
      converter = OptionValue.Whole.class,
      description = "the root rank, -1 for all of them in turn; default 0")
  int root;

  @Option(
      names = {"-z", "--blocking"},
      paramLabel = "0|1|2|3",
      defaultValue = "0",
      converter = OptionValue.Whole.class,
      description =
          "1: wait and meet after each operation, 2: wait only, 3: wait and meet after each iteration, the meeting not timed; default 0")
  int blocking;

  @Option(
      names = {"-T", "--timeout"},
      paramLabel = "SECONDS",
      defaultValue = "0",
      converter = OptionValue.Whole.class,
      description =
          "the longest wait; the reference backend may take as long again to say which rank is silent. Default 0: the library's, on the reference 10 minutes for a silent rank")
  int timeout;

  @Option(
      names = {"-C", "--report_cputime"},
      paramLabel = "0|1",
      defaultValue = "0",
      converter = OptionValue.Whole.class,
      description = "show the time of enqueuing instead of the whole; default 0")
  int cpuTime;

  @Option(
      names = {"-S", "--report_timestamps"},
      paramLabel = "0|1",
      defaultValue = "0",
      converter = OptionValue.Whole.class,
      description = "end each row with the time of day; default 0")
  int timestamps;

  @Option(
      names = {"-J", "--output_file"},
      paramLabel = "FILE",
      description = "write everything to a file too; it ends in .json, and one that exists is kept")
  Path outputFile;

  @Option(
      names = "--plot",
      paramLabel = "FILE",
      description = "draw time and bus bandwidth against size, as .svg or .png")
  Path plot;

  @Option(
      names = "--html",
      paramLabel = "FILE",
      description =
          "write charts, numbers and what was measured as one self-contained page, with --percentiles unless -G is given")
  Path html;

  @Option(
      names = "--compare",
      paramLabel = "FILE",
      description =
          "show an earlier run, a file of -J, in the picture and the page too; repeatable")
  List<Path> compare = List.of();

  @Option(
      names = "--percentiles",
      description =
          "after the timed iterations also time single operations, 20 to 1000 of them in about a second, for their percentiles in JSON, picture and page")
  boolean percentiles;

  @Option(
      names = {"-a", "--average"},
      paramLabel = "0|1|2|3",
      defaultValue = "1",
      converter = OptionValue.Whole.class,
      description = "whose time counts: 0 rank 0's, 1 the mean, 2 the least, 3 the most; default 1")
  int average;

  @Option(
      names = {"-u", "--unalign"},
      paramLabel = "N",
      defaultValue = "0",
      converter = OptionValue.Whole.class,
      description = "how many elements the buffers begin behind their allocation; default 0")
  int unalign;

  @Option(
      names = {"-I", "--per_iter_timing"},
      paramLabel = "0|1",
      defaultValue = "0",
      converter = OptionValue.Whole.class,
      description = "time each iteration by itself too; default 0")
  int perIteration;

  @Option(
      names = {"-K", "--per_iter_skip"},
      paramLabel = "N",
      defaultValue = "0",
      converter = OptionValue.Whole.class,
      description = "how many of those do not count; default 0")
  int skipped;

  @Option(
      names = {"-G", "--cudagraph"},
      paramLabel = "N",
      defaultValue = "0",
      converter = OptionValue.Whole.class,
      description =
          "capture the iterations as a graph and launch it N times; default 0: no graph. On the"
              + " reference backend a launch enqueues them anew")
  int graphs;

  @Option(
      names = {"-y", "--stream_null"},
      paramLabel = "N",
      defaultValue = "0",
      converter = OptionValue.Whole.class,
      hidden = true)
  int nullStream;

  @Option(
      names = {"-R", "--local_register"},
      paramLabel = "N",
      defaultValue = "0",
      converter = OptionValue.Whole.class,
      hidden = true)
  int register;

  @Option(
      names = {"-x", "--cta_policy"},
      paramLabel = "N",
      defaultValue = "-1",
      converter = OptionValue.Whole.class,
      hidden = true)
  int ctaPolicy;

  @Option(
      names = {"-D", "--device_implementation"},
      paramLabel = "N",
      defaultValue = "0",
      converter = OptionValue.Whole.class,
      hidden = true)
  int deviceImplementation;

  @Option(
      names = {"-V", "--device_cta_count"},
      paramLabel = "N",
      defaultValue = "16",
      converter = OptionValue.Whole.class,
      hidden = true)
  int deviceCtas;

  @Option(
      names = {"-M", "--memory"},
      paramLabel = "N",
      defaultValue = "0",
      converter = OptionValue.Whole.class,
      hidden = true)
  int memoryReport;

  @Option(names = "--debug", description = "show the stack trace of what failed")
  boolean debug;

  @Option(
      names = {"-h", "--help"},
      usageHelp = true,
      description = "show this")
  boolean help;

  /** The operators of {@code -o}. */
  record Operators(List<Operator> list) {}

  /** The types of {@code -d}. */
  record Types(List<ElementType> list) {}

  /** Says what cannot be, in one line. */
  static final class BadArguments extends RuntimeException {
    private static final long serialVersionUID = 1;

    BadArguments(String message) {
      super(message);
    }
  }

  /** Checks what needs no backend to be checked. */
  void check() {
    if (collective == null) {
      throw new BadArguments("no collective is named; there are " + Collective.names());
    }
    unsupported();
    sizes();
    atLeast(1, iterations, "-n");
    atLeast(1, aggregated, "-m");
    atLeast(0, warmup, "-w");
    atLeast(0, cycles, "-N");
    atLeast(0, checks, "-c");
    atLeast(0, timeout, "-T");
    atLeast(0, unalign, "-u");
    atLeast(-1, root, "-r");
    among(1, parallelInit, "-p");
    among(1, cpuTime, "-C");
    among(1, timestamps, "-S");
    among(1, perIteration, "-I");
    among(3, blocking, "-z");
    among(3, average, "-a");
    if (skipped < 0 || skipped >= iterations || (skipped > 0 && perIteration == 0)) {
      throw new BadArguments(
          "-K is " + skipped + "; it needs -I 1 and must be from 0 to " + (iterations - 1));
    }
    if (outputFile != null && !outputFile.toString().endsWith(".json")) {
      throw new BadArguments(
          "-J is " + outputFile + "; only JSON is written, to a name that ends in .json");
    }
    if (algorithm != AlgorithmChoice.AUTO && collective != Collective.ALL_REDUCE) {
      throw new BadArguments(
          "--algo is for all_reduce; " + collective.label() + " leaves no choice");
    }
    counts();
    processes();
    shown();
    atLeast(0, graphs, "-G");
    if (graphs > 0 && (blocking != 0 || perIteration != 0)) {
      throw new BadArguments(
          "-G is "
              + graphs
              + "; what is captured cannot wait or be timed one by one: -z and -I must be 0");
    }
  }

  private void shown() {
    if (!compare.isEmpty() && plot == null && html == null) {
      throw new BadArguments("--compare is for --plot and --html, and neither is given");
    }
    if (cycles == 0 && (plot != null || html != null)) {
      throw new BadArguments("-N is 0, for ever; --plot and --html are written at the end");
    }
    if (percentiles && graphs > 0) {
      throw new BadArguments(
          "--percentiles times single operations; what a graph has captured cannot be: -G must be 0");
    }
    if (percentiles && outputFile == null && plot == null && html == null) {
      throw new BadArguments("--percentiles is shown by -J, --plot and --html, and none is given");
    }
  }

  /** Checks the files of the process that writes them; others may not even have the folders. */
  void checkOutputs() {
    checkOutput("--plot", plot, OptionValue::picture);
    checkOutput("--html", html, OptionValue::page);
  }

  private static void checkOutput(String flag, Path file, Consumer<String> check) {
    try {
      if (file != null) {
        check.accept(file.toString());
      }
    } catch (TypeConversionException e) {
      throw new BadArguments(flag + ": " + e.getMessage());
    }
  }

  private void unsupported() {
    refuse(nullStream != 0, "-y", "nccl4j has no null stream; leave it out, or give 0");
    refuse(register != 0, "-R", "buffers are not registered yet; leave it out, or give 0");
    refuse(
        ctaPolicy != -1,
        "-x",
        "the CTA policy cannot be set yet; leave it out, or set NCCL_CTA_POLICY");
    refuse(deviceImplementation != 0, "-D", "Java has no device code; leave it out, or give 0");
    refuse(deviceCtas != 16, "-V", "Java has no device code; leave it out");
    refuse(memoryReport != 0, "-M", "memory is not reported yet; leave it out, or give 0");
  }

  private static void refuse(boolean given, String flag, String reason) {
    if (given) {
      throw new BadArguments(flag + " is not supported: " + reason);
    }
  }

  private static void atLeast(int least, int value, String flag) {
    if (value < least) {
      throw new BadArguments(flag + " is " + value + "; it must be " + least + " or more");
    }
  }

  private static void among(int most, int value, String flag) {
    if (value < 0 || value > most) {
      throw new BadArguments(flag + " is " + value + "; it must be from 0 to " + most);
    }
  }

  private void counts() {
    for (Integer count : new Integer[] {ranks, threads, ngpus}) {
      if (count != null && (count < 1 || count > 4096)) {
        String flag = count.equals(ranks) ? "--ranks" : count.equals(threads) ? "-t" : "-g";
        throw new BadArguments(flag + " is " + count + "; it must be from 1 to 4096");
      }
    }
    if (ranks != null && ngpus != null && ranks != driverThreads() * ngpus) {
      throw new BadArguments(
          "--ranks is %d and -t times -g is %d; give one of them, or the same number"
              .formatted(ranks, driverThreads() * ngpus));
    }
    if (ranks != null && ranks % driverThreads() != 0) {
      throw new BadArguments(
          "--ranks is %d; it must be a multiple of -t, %d".formatted(ranks, driverThreads()));
    }
  }

  private void processes() {
    if (limit != null && procs == null) {
      throw new BadArguments("--limit is for --procs; -T is the longest wait of a process");
    }
    if (limit != null) {
      atLeast(1, limit, "--limit");
    }
    int most = Processes.most();
    if (procs != null && (procs < 1 || procs > most)) {
      throw new BadArguments(
          "--procs is %d; it must be from 1 to %d, %d for each processor"
              .formatted(procs, most, Processes.PER_PROCESSOR));
    }
  }

  private int driverThreads() {
    return threads == null ? 1 : threads;
  }

  private Settings.Sizes sizes() {
    if (minBytes < 1) {
      throw new BadArguments("-b is " + minBytes + "; it must be 1 byte or more");
    }
    if (minBytes > maxBytes) {
      throw new BadArguments(
          "-b is " + minBytes + " and -e is " + maxBytes + "; -b must not be above -e");
    }
    if (stepFactor != null && stepFactor < 0) {
      throw new BadArguments("-f is " + stepFactor + "; it must be 2 or more, or 1 with -i");
    }
    if (stepFactor != null && stepFactor > 1) {
      return new Settings.Sizes(minBytes, maxBytes, stepFactor, 0);
    }
    long step = stepBytes == null ? 1 << 20 : stepBytes;
    boolean stuck = step == 0 || (stepFactor != null && stepBytes == null);
    if (minBytes < maxBytes && stuck) {
      throw new BadArguments(
          (stepFactor == null
                  ? "-i is 0"
                  : "-f is " + stepFactor + " and -i is " + (stepBytes == null ? "not given" : "0"))
              + "; from -b to -e it takes -f of 2 or more, or -i of 1 or more");
    }
    return new Settings.Sizes(minBytes, maxBytes, 1, step);
  }

  /**
   * Returns how many ranks the command line asks for in a process, or 0 where it leaves that open.
   */
  int ranksAskedFor() {
    if (ranks != null) {
      return ranks;
    }
    return threads == null && ngpus == null ? 0 : driverThreads() * (ngpus == null ? 1 : ngpus);
  }

  /** Returns how many ranks a process has, given the devices of a backend. */
  private int ranksOfProcess(Job job, List<Device> devices) {
    int wanted = ranksAskedFor();
    return wanted > 0 ? wanted : job.alone() ? devices.size() : 1;
  }

  /**
   * Returns the settings for a backend, after the checks that need one.
   *
   * @param environment where NCCL reads its variables
   */
  Settings settings(Backend opened, Job job, Map<String, String> environment) {
    List<Device> devices = opened.devices();
    int count = ranksOfProcess(job, devices);
    int firstDevice =
        opened.platform() == Platform.CUDA ? firstGpu(opened, job, count, environment) : 0;
    int all = count * job.processes();
    if (collective.rooted() && root >= all) {
      throw new BadArguments(
          "-r is %d; it must be from 0 to %d, or -1 for all in turn".formatted(root, all - 1));
    }
    return new Settings(
        collective,
        opened,
        choices(opened, environment),
        job,
        firstDevice,
        driverThreads(),
        count / driverThreads(),
        types.list(),
        collective.reduces() || collective == Collective.SENDRECV
            ? operators.list()
            : List.of(Operator.SUM),
        roots(all),
        withinMemory(devices, count * job.localProcesses()),
        iterations,
        warmup,
        warmup > 0 && !noJitWarmup,
        aggregated,
        cycles,
        checks,
        averageOf(),
        blockingOf(),
        Duration.ofSeconds(timeout),
        cpuTime == 1,
        perIteration == 1,
        percentiles || (html != null && graphs == 0),
        graphs,
        skipped,
        unalign,
        parallelInit == 1);
  }

  private Map<String, String> choices(Backend opened, Map<String, String> environment) {
    Map<String, String> choices = new LinkedHashMap<>();
    choices.put("algorithm", algorithm.name().toLowerCase(Locale.ROOT));
    for (String variable : List.of("NCCL_ALGO", "NCCL_PROTO")) {
      if (opened.platform() == Platform.CUDA && environment.containsKey(variable)) {
        choices.put(variable, environment.get(variable));
      }
    }
    return choices;
  }

  /** Returns the GPU of a process's first rank: mostly each rank of a host needs its own. */
  private static int firstGpu(Backend opened, Job job, int count, Map<String, String> environment) {
    int gpus = opened.devices().size();
    int onHost = count * job.localProcesses();
    // Launchers may show each process only its own.
    boolean ownOnly = !job.alone() && count == gpus;
    if (onHost > gpus && !ownOnly) {
      String refusal = SharedGpus.refusal(Versions.of(opened).get("nccl"), environment);
      if (!refusal.isEmpty()) {
        throw new BadArguments(
            "%s asked for%s; there %s, and %s"
                .formatted(
                    onHost == 1 ? "1 rank is" : onHost + " ranks are",
                    job.alone() ? "" : " on this host",
                    gpus == 1 ? "is 1 GPU" : "are " + gpus + " GPUs",
                    refusal));
      }
    }
    return onHost > gpus && ownOnly ? 0 : count * job.localProcess();
  }

  private Settings.Average averageOf() {
    return switch (average) {
      case 0 -> Settings.Average.RANK0;
      case 1 -> Settings.Average.AVG;
      case 2 -> Settings.Average.MIN;
      default -> Settings.Average.MAX;
    };
  }

  private Settings.Blocking blockingOf() {
    return switch (blocking) {
      case 0 -> Settings.Blocking.NONE;
      case 1 -> Settings.Blocking.WAIT_AND_MEET;
      case 2 -> Settings.Blocking.WAIT;
      default -> Settings.Blocking.WAIT_AND_MEET_UNTIMED;
    };
  }

  private List<Integer> roots(int count) {
    if (!collective.rooted()) {
      return List.of(-1);
    }
    return root >= 0 ? List.of(root) : IntStream.range(0, count).boxed().toList();
  }

  /**
   * Cuts the largest size down to what two buffers per rank, for each operation of a group, leave
   * room for, as nccl-tests does: in 7/8 of each GPU's memory, or in half of this machine's, which
   * others use as well.
   */
  private Settings.Sizes withinMemory(List<Device> devices, int count) {
    long smallest = devices.stream().mapToLong(Device::memoryBytes).min().orElseThrow();
    boolean onHost = devices.getFirst().pciBusId().isEmpty();
    long room = onHost ? smallest / 2 / count : smallest / 8 * 7;
    long most = room / 2 / aggregated;
    Settings.Sizes wanted = sizes();
    return wanted.max() <= most
        ? wanted
        : new Settings.Sizes(Math.min(wanted.min(), most), most, wanted.factor(), wanted.step());
  }

  /** A collective's name. */
  private static final class CollectiveName implements ITypeConverter<Collective> {
    @Override
    public Collective convert(String text) {
      return Collective.named(text)
          .orElseThrow(
              () ->
                  new BadArguments(
                      "'" + text + "' is no collective; there are " + Collective.names()));
    }
  }

  /** The operators of a name. */
  private static final class OperatorName implements ITypeConverter<Operators> {
    @Override
    public Operators convert(String text) {
      return OptionValue.parsed(text, name -> new Operators(Operator.named(name)));
    }
  }

  /** The types of a name. */
  private static final class TypeName implements ITypeConverter<Types> {
    @Override
    public Types convert(String text) {
      return OptionValue.parsed(text, name -> new Types(ElementType.named(name)));
    }
  }

  /** A backend's name. */
  private static final class BackendName implements ITypeConverter<BackendChoice> {
    @Override
    public BackendChoice convert(String text) {
      return OptionValue.named(BackendChoice.class, text);
    }
  }

  /** An algorithm's name. */
  private static final class AlgorithmName implements ITypeConverter<AlgorithmChoice> {
    @Override
    public AlgorithmChoice convert(String text) {
      return OptionValue.named(AlgorithmChoice.class, text);
    }
  }
}
