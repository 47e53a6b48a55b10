package io.nccl4j.tools.perf;

import io.nccl4j.Backend;
import io.nccl4j.Device;
import io.nccl4j.DeviceType;
import io.nccl4j.plugin.NcclProtocol;
import io.nccl4j.tools.cli.OptionValue;
import io.nccl4j.tools.cli.Within;
import io.nccl4j.tools.perf.Settings.Average;
import io.nccl4j.tools.perf.Settings.Blocking;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;

/** The command line: the flags of nccl-tests, and a few of our own. */
@Command(
    name = "perf",
    sortOptions = false,
    usageHelpWidth = 100,
    customSynopsis = "nccl4j perf COLLECTIVE [flags]",
    header = "Measures the bandwidth of a collective and checks its data.",
    description = {
      "COLLECTIVE is one of all_reduce, all_gather, reduce_scatter, broadcast, reduce, alltoall, gather,",
      "scatter, sendrecv; allreduce, all-reduce and AllReduce are also accepted. Flags, lines and columns",
      "are those of nccl-tests 2.19. A SIZE is in bytes, or has the suffix K, M or G (1024-based)."
    },
    footer = {
      "",
      "Ranks: without -t, -g and --ranks, one per GPU; on the reference backend one per processor, at",
      "least two. The reference backend runs at most 128 per processor.",
      "Processes: with --procs, or when started by mpirun, torchrun --no-python, srun, or with RANK and",
      "WORLD_SIZE set, -t, -g and --ranks apply to each process; the default is then one rank per process.",
      "Process 0 prints.",
      "Exit status: 0 success, 1 a library or device failed, 2 bad arguments, 3 wrong data, 4 time-out."
    })
final class Flags {
  /** The values of {@code --backend}. */
  enum BackendChoice {
    AUTO,
    NCCL,
    REFERENCE
  }

  @Parameters(index = "0", arity = "0..1", paramLabel = "COLLECTIVE", hidden = true)
  Collective collective;

  @Option(
      names = "--backend",
      paramLabel = "NAME",
      defaultValue = "auto",
      description = "auto (NCCL if a GPU is usable), nccl or reference; default auto")
  BackendChoice backend;

  @Option(
      names = "--algo",
      paramLabel = "NAME",
      description =
          "ring, tree, nvls, nvls_tree, collnet_direct, collnet_chain, pat or auto; on the reference backend ring, tree, direct or auto, for all_reduce; default auto. On NCCL also by size: tree:..64K,ring:64K..")
  Algorithms algorithms;

  @Option(
      names = "--proto",
      paramLabel = "NAME",
      description =
          "on NCCL: ll, ll128 or simple, also by size; default: the one that NCCL expects to be quickest")
  Protocols protocols;

  @Option(
      names = "--show-algorithm",
      description =
          "add columns with the algorithm, protocol and channels that NCCL chose; - if it does not report them")
  boolean showAlgorithm;

  @Mixin final RankOptions ranks = new RankOptions();

  @Mixin final SizeOptions sizes = new SizeOptions();

  @Option(
      names = {"-n", "--iters"},
      paramLabel = "N",
      defaultValue = "20",
      description = "timed iterations; default 20")
  @Within(least = 1)
  int iterations;

  @Option(
      names = {"-m", "--agg_iters"},
      paramLabel = "N",
      defaultValue = "1",
      description =
          "operations per iteration, launched as one group, each with its own memory; default 1")
  @Within(least = 1)
  int aggregated;

  @Option(
      names = {"-w", "--warmup_iters"},
      paramLabel = "N",
      defaultValue = "1",
      description = "warm-up iterations for each size; default 1")
  @Within(least = 0)
  int warmup;

  @Option(
      names = "--no-jit-warmup",
      description =
          "skip the operations that run before a table until the JVM has compiled the code; -w 0 skips them too")
  boolean noJitWarmup;

  @Option(
      names = {"-N", "--run_cycles"},
      paramLabel = "N",
      defaultValue = "1",
      description = "number of runs of the whole table, 0 for unlimited; default 1")
  @Within(least = 0)
  int cycles;

  @Option(
      names = {"-p", "--parallel_init"},
      paramLabel = "0|1",
      defaultValue = "0",
      description = "each thread creates its own communicators; default 0")
  @Within(least = 0, most = 1)
  int parallelInit;

  @Option(
      names = {"-c", "--check"},
      paramLabel = "N",
      defaultValue = "1",
      description = "data checks per row, 0 for none; default 1")
  @Within(least = 0)
  int checks;

  @Option(
      names = {"-o", "--op"},
      paramLabel = "NAME",
      defaultValue = "sum",
      description = "sum, prod, max, min, avg, mulsum or all; default sum")
  Operators operators;

  @Option(
      names = {"-d", "--datatype"},
      paramLabel = "NAME",
      defaultValue = "float",
      description =
          "int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16, f8e4m3, f8e5m2 or all; default float")
  Types types;

  @Option(
      names = {"-r", "--root"},
      paramLabel = "N",
      defaultValue = "0",
      description = "the root rank, -1 for each rank in turn; default 0")
  @Within(least = -1)
  int root;

  @Option(
      names = {"-z", "--blocking"},
      paramLabel = "0|1|2|3",
      defaultValue = "0",
      description =
          "1: wait and barrier after each operation, 2: wait only, 3: wait and untimed barrier after each iteration; default 0")
  @Within(least = 0, most = 3)
  int blocking;

  @Option(
      names = {"-T", "--timeout"},
      paramLabel = "SECONDS",
      defaultValue = "0",
      description =
          "time-out of a wait for the ranks to connect, and for their work; the reference backend may take twice as long, to name the missing rank. Default 0: 10 minutes, for work on NCCL 30. Processes that start late are always waited for 2 minutes")
  @Within(least = 0)
  int timeout;

  @Option(
      names = {"-C", "--report_cputime"},
      paramLabel = "0|1",
      defaultValue = "0",
      description = "show the enqueue time instead of the total time; default 0")
  @Within(least = 0, most = 1)
  int cpuTime;

  @Option(
      names = {"-S", "--report_timestamps"},
      paramLabel = "0|1",
      defaultValue = "0",
      description = "end each row with the time of day; default 0")
  @Within(least = 0, most = 1)
  int timestamps;

  @Mixin final FileOptions files = new FileOptions();

  @Option(
      names = {"-a", "--average"},
      paramLabel = "0|1|2|3",
      defaultValue = "1",
      description =
          "reported time: 0 rank 0's, 1 the mean, 2 the minimum, 3 the maximum; default 1")
  @Within(least = 0, most = 3)
  int average;

  @Option(
      names = {"-u", "--unalign"},
      paramLabel = "N",
      defaultValue = "0",
      description = "offset of the buffers in their allocations, in elements; default 0")
  @Within(least = 0)
  int unalign;

  @Option(
      names = {"-I", "--per_iter_timing"},
      paramLabel = "0|1",
      defaultValue = "0",
      description = "also time each iteration separately; default 0")
  @Within(least = 0, most = 1)
  int perIteration;

  @Option(
      names = {"-K", "--per_iter_skip"},
      paramLabel = "N",
      defaultValue = "0",
      description = "iterations to skip in -I's statistics; default 0")
  int skipped;

  @Option(
      names = {"-G", "--cudagraph"},
      paramLabel = "N",
      defaultValue = "0",
      description =
          "capture the iterations as a graph and launch it N times; default 0: no graph. On the"
              + " reference backend each launch enqueues the operations again")
  @Within(least = 0)
  int graphs;

  @Mixin final UnsupportedOptions unsupported = new UnsupportedOptions();

  @Option(names = "--debug", description = "print the stack trace of a failure")
  boolean debug;

  @Option(
      names = {"-h", "--help"},
      usageHelp = true,
      description = "print this help")
  boolean help;

  /**
   * Returns a parser that accepts what getopt_long does: of a repeated flag the last value, and
   * long flags that are abbreviated unambiguously.
   */
  static CommandLine parser(Flags flags) {
    // Picocli warns on stderr of each repeated flag.
    CommandLine.tracer().setLevel(CommandLine.TraceLevel.OFF);
    CommandLine line =
        OptionValue.convert(new CommandLine(flags))
            .setOverwrittenOptionsAllowed(true)
            .setAbbreviatedOptionsAllowed(true);
    OptionValue.convert(line, int.class, Flags::whole);
    OptionValue.convert(line, Integer.class, Flags::whole);
    OptionValue.convert(line, Collective.class, Collective::named);
    OptionValue.convert(line, Operators.class, text -> new Operators(named(Operator.class, text)));
    OptionValue.convert(line, Types.class, text -> new Types(named(ElementType.class, text)));
    OptionValue.convert(
        line, Algorithms.class, text -> new Algorithms(BySize.parse(Algorithm.class, text)));
    OptionValue.convert(
        line, Protocols.class, text -> new Protocols(BySize.parse(NcclProtocol.class, text)));
    return line;
  }

  /** As C's strtol: also hexadecimal after 0x and octal after 0, with a plus sign or blanks. */
  private static Integer whole(String text) {
    try {
      // Integer.decode also takes #10 for a hexadecimal number.
      return Integer.decode(text.strip().replace('#', '?'));
    } catch (NumberFormatException e) {
      throw new IllegalArgumentException("'" + text + "' is not a whole number", e);
    }
  }

  /** Returns the constant with a name in upper or lower case, or all for {@code all}. */
  private static <E extends Enum<E>> List<E> named(Class<E> type, String text) {
    List<E> constants = List.of(type.getEnumConstants());
    List<E> named =
        text.equals("all")
            ? constants
            : constants.stream().filter(each -> each.name().equalsIgnoreCase(text)).toList();
    if (named.isEmpty()) {
      throw new IllegalArgumentException(
          "'%s' is not one of %s or all"
              .formatted(
                  text,
                  constants.stream()
                      .map(each -> each.name().toLowerCase(Locale.ROOT))
                      .collect(Collectors.joining(", "))));
    }
    return named;
  }

  /** The operators of {@code -o}. */
  record Operators(List<Operator> list) {}

  /** The types of {@code -d}. */
  record Types(List<ElementType> list) {}

  /** The algorithms of {@code --algo}. */
  record Algorithms(BySize<Algorithm> bySize) {}

  /** The protocols of {@code --proto}. */
  record Protocols(BySize<NcclProtocol> bySize) {}

  /** Returns the algorithm for a size. */
  Algorithm algorithm(long bytes) {
    return algorithms == null ? Algorithm.AUTO : algorithms.bySize.at(bytes, Algorithm.AUTO);
  }

  /** Returns the protocol for a size, or null if NCCL chooses. */
  NcclProtocol protocol(long bytes) {
    return protocols == null ? null : protocols.bySize.at(bytes, null);
  }

  /**
   * Checks the flags without a backend.
   *
   * @param line the parser of the flags
   * @throws BadArguments if they are invalid
   */
  void check(CommandLine line) {
    if (collective == null) {
      throw new BadArguments("no collective given; use one of " + Collective.names());
    }
    OptionValue.checkBounds(line);
    unsupported.check();
    sizes.requested();
    if (skipped < 0 || skipped >= iterations || (skipped > 0 && perIteration == 0)) {
      throw new BadArguments(
          "-K is " + skipped + "; it needs -I 1 and must be from 0 to " + (iterations - 1));
    }
    if (!collective.hasAlgorithms() && (algorithms != null || protocols != null)) {
      throw new BadArguments(
          "--algo and --proto do not apply to "
              + collective.label()
              + ", which consists of sends and receives");
    }
    ranks.check();
    files.check(cycles, graphs);
    if (graphs > 0 && (blocking != 0 || perIteration != 0)) {
      throw new BadArguments(
          "-G is "
              + graphs
              + "; captured operations cannot wait or be timed one by one: -z and -I must be 0");
    }
  }

  /** Checks the flags that NCCL and the reference backend understand differently. */
  void checkChoices(String backend) {
    if (algorithms != null) {
      for (BySize.Range<Algorithm> range : algorithms.bySize.ranges()) {
        if (!range.value().on(backend)) {
          throw new BadArguments(
              "--algo has %s, which the %s backend does not have"
                  .formatted(range.value().label(), backend));
        }
      }
    }
    if (!backend.equals("reference")) {
      return;
    }
    if (protocols != null || showAlgorithm) {
      throw new BadArguments(
          (protocols != null ? "--proto" : "--show-algorithm")
              + " is for NCCL; the reference backend has no protocols and does not report what it chooses");
    }
    if (algorithms != null) {
      Algorithm algorithm = algorithm(0);
      if (!algorithms.bySize.text().equals(algorithm.label())) {
        throw new BadArguments(
            "--algo has ranges of sizes; the reference backend has one algorithm for all");
      }
      if (algorithm != Algorithm.AUTO && collective != Collective.ALL_REDUCE) {
        throw new BadArguments(
            "--algo applies to all_reduce only on the reference backend, not to "
                + collective.label());
      }
    }
  }

  /**
   * Returns the settings for a backend, after the checks that need one.
   *
   * @param environment the environment, from which NCCL reads its variables
   */
  Settings settings(Backend opened, Job job, Map<String, String> environment) {
    List<Device> devices = opened.devices();
    int count = ranks.ofProcess(job, devices);
    int firstDevice =
        opened.deviceType() == DeviceType.CUDA
            ? RankOptions.firstGpu(opened, job, count, environment)
            : 0;
    int all = count * job.processes();
    if (collective.rooted() && root >= all) {
      throw new BadArguments(
          "-r is %d; it must be from 0 to %d, or -1 for all in turn".formatted(root, all - 1));
    }
    return new Settings(
        this,
        opened,
        choices(opened, environment),
        job,
        firstDevice,
        count / ranks.enqueueThreads(),
        roots(all),
        sizes.withinMemory(devices, count * job.localProcesses(), aggregated));
  }

  /** Returns the operators to measure; one if nothing is reduced. */
  List<Operator> operators() {
    return collective.reduces() || collective == Collective.SENDRECV
        ? operators.list()
        : List.of(Operator.SUM);
  }

  /** Returns whether operations run until the JIT has compiled them. */
  boolean jitWarmup() {
    return warmup > 0 && !noJitWarmup;
  }

  /** Returns which thread's time counts. */
  Average average() {
    return List.of(Average.RANK0, Average.AVG, Average.MIN, Average.MAX).get(average);
  }

  /** Returns when the threads wait. */
  Blocking blocking() {
    return List.of(
            Blocking.NONE,
            Blocking.WAIT_AND_BARRIER,
            Blocking.WAIT,
            Blocking.WAIT_AND_UNTIMED_BARRIER)
        .get(blocking);
  }

  /** Returns the longest wait for the ranks' streams; zero for the default. */
  Duration timeout() {
    return Duration.ofSeconds(timeout);
  }

  /** Returns whether each iteration is timed separately. */
  boolean perIteration() {
    return perIteration == 1;
  }

  /** Returns whether single operations are also timed. */
  boolean percentiles() {
    return files.percentiles || (files.html != null && graphs == 0);
  }

  private Map<String, String> choices(Backend opened, Map<String, String> environment) {
    Map<String, String> choices = new LinkedHashMap<>();
    choices.put("algorithm", algorithms == null ? "auto" : algorithms.bySize.text());
    if (protocols != null) {
      choices.put("protocol", protocols.bySize.text());
    }
    for (String variable : List.of("NCCL_ALGO", "NCCL_PROTO")) {
      if (opened.deviceType() == DeviceType.CUDA && environment.containsKey(variable)) {
        choices.put(variable, environment.get(variable));
      }
    }
    return choices;
  }

  private List<Integer> roots(int count) {
    if (!collective.rooted()) {
      return List.of(-1);
    }
    return root >= 0 ? List.of(root) : IntStream.range(0, count).boxed().toList();
  }
}
