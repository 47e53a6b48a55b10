package io.nccl4j.tools.perf;

import io.nccl4j.Backend;
import io.nccl4j.CudaException;
import io.nccl4j.Device;
import io.nccl4j.LibraryNotFoundException;
import io.nccl4j.NcclException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.reference.ReferenceBackend;
import io.nccl4j.reference.ReferenceOptions;
import io.nccl4j.tools.cli.Commands;
import io.nccl4j.tools.perf.report.PerfRun;
import io.nccl4j.tools.perf.report.RunReport;
import io.nccl4j.tools.processes.Processes;
import java.io.BufferedOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.UnaryOperator;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import jdk.jfr.FlightRecorder;
import org.apache.logging.log4j.LogManager;
import picocli.CommandLine;
import picocli.CommandLine.ParameterException;

/** The bandwidth command: parses the command line, runs it and returns an exit status. */
public final class Perf {
  /** With more ranks per processor on the reference backend, a row takes minutes. */
  private static final int RANKS_PER_PROCESSOR = 128;

  /** The error of a CUDA allocation that fails for lack of memory. */
  private static final String NO_MEMORY = "cudaErrorMemoryAllocation";

  private static final String HELP = "; see --help";

  private static final String LESS_MEMORY = "; a smaller -e needs less memory";

  /** How long the other processes may take to report and exit once one has exited. */
  private static final Duration GRACE = Duration.ofSeconds(15);

  private final PrintStream out;
  private final PrintStream err;
  private final boolean terminal;
  private final Map<String, String> environment;
  private final UnaryOperator<RankEnqueue> interceptor;
  private boolean startedProcesses;

  /**
   * Creates a command.
   *
   * @param out receives the table
   * @param err receives messages
   * @param terminal whether stderr is a terminal, on which to show progress
   * @param environment the environment, from which NCCL reads its variables
   * @param interceptor wraps the collective; the identity except in tests
   */
  Perf(
      PrintStream out,
      PrintStream err,
      boolean terminal,
      Map<String, String> environment,
      UnaryOperator<RankEnqueue> interceptor) {
    this.out = out;
    this.err = err;
    this.terminal = terminal;
    this.environment = environment;
    this.interceptor = interceptor;
  }

  /** Runs the command and exits with its status. */
  public static void main(String[] args) {
    PrintStream out =
        new PrintStream(
            new BufferedOutputStream(new FileOutputStream(FileDescriptor.out)),
            false,
            StandardCharsets.UTF_8);
    // In parallel with parsing the command line, which takes as long.
    Thread.ofPlatform()
        .daemon()
        .name("perf-log4j")
        .start(() -> LogManager.getLogger(Perf.class).debug("ready"));
    Perf perf =
        new Perf(out, System.err, Commands.onTerminal(), System.getenv(), UnaryOperator.identity());
    int status = perf.run(args);
    out.flush();
    if (FlightRecorder.isInitialized() || perf.startedProcesses) {
      // Shutdown hooks write the flight recording. With child processes, a signal may already have
      // begun the shutdown, whose status then stays.
      System.exit(status);
    }
    // Does not wait for threads that a failed run has left behind.
    Runtime.getRuntime().halt(status);
  }

  /** Runs the command and returns its exit status. */
  int run(String... args) {
    Flags flags = new Flags();
    CommandLine commandLine = Flags.parser(flags);
    try {
      commandLine.parseArgs(args);
      if (flags.help) {
        commandLine.usage(out);
        checkOutput();
        return Commands.OK;
      }
      flags.check(commandLine);
      Job job = Job.in(environment);
      if (job.writes()) {
        flags.files.checkWritable();
      }
      return flags.ranks.procs == null || flags.ranks.child
          ? measure(flags, job, List.of(args))
          : start(flags, job, List.of(args));
    } catch (ParameterException e) {
      return fail(flags, e, e.getMessage() + HELP, Commands.BAD_ARGUMENTS);
    } catch (BadArguments e) {
      return fail(flags, e, e.getMessage(), Commands.BAD_ARGUMENTS);
    } catch (NcclTimeoutException e) {
      return fail(flags, e, "time-out: " + e.getMessage(), Commands.TIMED_OUT);
    } catch (NoBackend e) {
      return fail(flags, e.getCause(), e.getMessage() + remedy(), Commands.FAILED);
    } catch (CudaException e) {
      String remedy = e.errorName().equals(NO_MEMORY) ? LESS_MEMORY : "";
      return fail(flags, e, e.getMessage() + remedy, Commands.FAILED);
    } catch (NcclException e) {
      String remedy = e.function().equals("ncclMemAlloc") ? LESS_MEMORY : "";
      return fail(flags, e, e.getMessage() + remedy, Commands.FAILED);
    } catch (OutOfMemoryError e) {
      return fail(flags, e, e.getMessage() + LESS_MEMORY, Commands.FAILED);
    } catch (RuntimeException | IOException e) {
      String message = e.getMessage() == null ? e.toString() : e.getMessage();
      return fail(flags, e, message, Commands.FAILED);
    }
  }

  private static String remedy() {
    return System.lineSeparator()
        + "Run nccl4j doctor to see what is missing. Without a GPU, use '--backend reference', which is pure Java.";
  }

  private void checkOutput() {
    if (out.checkError()) {
      throw new IllegalStateException(
          "cannot write to stdout; its device is full or its reader has exited");
    }
  }

  private int fail(Flags flags, Throwable failure, String message, int status) {
    String name = flags.collective == null ? "perf" : flags.collective.program();
    out.flush();
    err.println(name + ": " + processPrefix(flags) + message);
    if (flags.debug) {
      failure.printStackTrace(err);
    }
    err.flush();
    return status;
  }

  /** Starts the measuring processes and waits for them. */
  private int start(Flags flags, Job job, List<String> args) throws IOException {
    if (!job.alone()) {
      throw new BadArguments(
          "--procs is %d, but this is %s; omit it, or start the command without a launcher"
              .formatted(flags.ranks.procs, job.describe()));
    }
    List<String> command = Processes.ownCommand(args.size());
    command.addAll(args);
    command.add("--child");
    startedProcesses = true;
    int ranksPerProcess = Math.max(1, flags.ranks.requested());
    Duration limit = flags.ranks.limit == null ? null : Duration.ofSeconds(flags.ranks.limit);
    return new Processes(flags.collective.program(), ranksPerProcess, GRACE, err)
        .run(flags.ranks.procs, command, limit);
  }

  /** Returns a prefix that names this process, or "" if the parent process adds one. */
  private String processPrefix(Flags flags) {
    if (flags.ranks.child) {
      return "";
    }
    try {
      Job job = Job.in(environment);
      return job.alone() ? "" : "process " + job.process() + ": ";
    } catch (BadArguments e) {
      // The failure being reported.
      return "";
    }
  }

  private int measure(Flags flags, Job job, List<String> args) throws IOException {
    if (flags.ranks.child) {
      Processes.endWithParent();
    }
    NcclChoices choices =
        flags.backend == Flags.BackendChoice.REFERENCE ? null : NcclChoices.install(flags);
    try (Backend backend = open(flags, job)) {
      boolean nccl = backend.name().equals("nccl");
      if (nccl) {
        flags.checkChoices("nccl");
      }
      Settings settings = flags.settings(backend, job, environment);
      return new Run(flags, settings, nccl ? choices : null, args).run();
    }
  }

  /** NCCL or CUDA is missing or unusable on this host. */
  private static final class NoBackend extends RuntimeException {
    private static final long serialVersionUID = 1;

    NoBackend(RuntimeException cause) {
      super(cause.getMessage(), cause);
    }
  }

  private static Backend nccl() {
    try {
      return Backend.nccl();
    } catch (LibraryNotFoundException | CudaException e) {
      throw new NoBackend(e);
    }
  }

  private static Backend automatic(Flags flags, Job job) {
    try {
      return Backend.auto(() -> reference(flags, job));
    } catch (LibraryNotFoundException e) {
      throw new NoBackend(e);
    }
  }

  private static Backend open(Flags flags, Job job) {
    return switch (flags.backend) {
      case NCCL -> nccl();
      case REFERENCE -> reference(flags, job);
      case AUTO -> automatic(flags, job);
    };
  }

  private static Backend reference(Flags flags, Job job) {
    int requested = flags.ranks.requested() * job.localProcesses();
    int processors = Runtime.getRuntime().availableProcessors();
    if (requested > RANKS_PER_PROCESSOR * processors) {
      throw new BadArguments(
          "%d ranks requested; on the reference backend each rank is a thread, and %s at most %d"
              .formatted(
                  requested,
                  processors == 1 ? "1 processor runs" : processors + " processors run",
                  RANKS_PER_PROCESSOR * processors));
    }
    flags.checkChoices("reference");
    int devices =
        requested > 0 ? flags.ranks.requested() : job.alone() ? Math.max(2, processors) : 1;
    return ReferenceBackend.open(
        devices,
        ReferenceOptions.defaults()
            .withAlgorithm(io.nccl4j.reference.Algorithm.valueOf(flags.algorithm(0).name())));
  }

  /** One run of the command with validated settings. */
  private final class Run {
    private final List<String> args;
    private final Table table;
    private final ProgressLine progress;
    private final JsonReport json;
    private final List<PerfRun> earlier;
    private final List<Row> rows = new ArrayList<>();
    private final Flags flags;
    private final NcclChoices choices;
    private Settings settings;
    private List<RankLocation> locations;

    /**
     * Creates a run.
     *
     * @param choices what NCCL is to use and report, or null on the reference backend
     */
    Run(Flags flags, Settings settings, NcclChoices choices, List<String> args) {
      this.flags = flags;
      this.choices = choices;
      this.earlier = settings.job().writes() ? earlier(flags) : List.of();
      this.settings = settings;
      this.args = args;
      this.locations = ownLocations();
      this.progress =
          new ProgressLine(terminal ? err : null, settings.rows() * settings.flags().cycles);
      boolean writes = settings.job().writes();
      this.json =
          flags.files.outputFile == null || !writes
              ? JsonReport.withoutFile()
              : json(flags.files.outputFile);
      this.table =
          new Table(
              writes ? out : new PrintStream(OutputStream.nullOutputStream()),
              flags.timestamps == 1);
      if (json.file() != null) {
        table.note("Writing JSON output to " + json.file());
      }
      if (settings.job().alone()) {
        header();
      }
    }

    private List<RankLocation> ownLocations() {
      List<Device> devices = settings.backend().devices();
      return IntStream.range(0, settings.ranks())
          .mapToObj(rank -> RankLocation.of(devices.get(settings.deviceOf(rank)), args.hashCode()))
          .toList();
    }

    private void header() {
      settings
          .backend()
          .fallbackReason()
          .ifPresent(reason -> ("NCCL is not used: " + reason).lines().forEach(table::note));
      table.header(settings, version(), flags.sizes.minBytes, flags.sizes.maxBytes, locations);
    }

    private static JsonReport json(Path file) {
      try {
        return JsonReport.to(file);
      } catch (IOException e) {
        String reason = e instanceof NoSuchFileException ? "no such folder" : e.getMessage();
        throw new BadArguments("-J is " + file + ", which cannot be written: " + reason);
      }
    }

    private static List<PerfRun> earlier(Flags flags) {
      List<PerfRun> earlier = new ArrayList<>();
      for (Path file : flags.files.compare) {
        try {
          earlier.add(PerfRun.read(file));
        } catch (IOException | IllegalArgumentException e) {
          throw new BadArguments("--compare: " + e.getMessage());
        }
      }
      return earlier;
    }

    private String version() {
      Map<String, String> versions = Versions.of(settings.backend());
      String nccl = versions.containsKey("nccl") ? ", NCCL " + versions.get("nccl") : "";
      return "nccl4j %s, backend %s%s; lines and columns as nccl-tests version 2.19"
          .formatted(versions.get("nccl4j"), settings.backend().name(), nccl);
    }

    int run() throws IOException {
      // Not closed on failure: closing would wait for ranks that may be stuck.
      Bench bench = connected();
      boolean completed = false;
      try {
        bench.run(this::row);
        completed = true;
      } finally {
        progress.erase();
        if (!completed) {
          bench.abort();
          writeJson(bench.failedChecks(), List.of("the run failed after " + rows.size() + " rows"));
        }
      }
      table.footer(bench.failedChecks(), averageBusBw());
      checkOutput();
      writePage(writeJson(bench.failedChecks(), List.of()));
      bench.close();
      return bench.failedChecks() > 0 ? Commands.WRONG_DATA : Commands.OK;
    }

    private Bench connected() throws IOException {
      boolean connected = false;
      try {
        Bench bench =
            new Bench(settings, choices, locations, interceptor.apply(settings.flags().collective));
        if (!settings.job().alone()) {
          settings = bench.settings();
          locations = bench.locations();
          header();
        }
        connected = true;
        return bench;
      } finally {
        if (!connected) {
          writeJson(0, List.of("the ranks could not be connected"));
        }
      }
    }

    private void row(Row row) {
      rows.add(row);
      progress.erase();
      table.row(row);
      checkOutput();
      progress.rowDone();
    }

    private double averageBusBw() {
      return rows.stream()
          .flatMap(row -> Stream.of(row.outOfPlace(), row.inPlace()))
          .mapToDouble(Row.Cell::busBw)
          .average()
          .orElse(0);
    }

    private String writeJson(int failedChecks, List<String> errors) throws IOException {
      String text =
          json.text(settings, args, locations, rows, failedChecks, averageBusBw(), errors);
      json.write(text);
      return text;
    }

    /** Writes the page: this run and the earlier ones, all read from their JSON. */
    private void writePage(String text) throws IOException {
      if (flags.files.html == null || !settings.job().writes()) {
        return;
      }
      List<PerfRun> runs = new ArrayList<>(earlier);
      runs.add(
          PerfRun.of(text, earlier.isEmpty() ? settings.flags().collective.label() : "this run"));
      RunReport.writePage(runs, flags.files.html);
    }
  }
}
