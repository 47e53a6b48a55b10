package io.nccl4j.examples.training;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.rendezvous.LaunchEnvironment;
import io.nccl4j.rendezvous.Launcher;
import io.nccl4j.tools.cli.Commands;
import io.nccl4j.tools.cli.OptionValue;
import io.nccl4j.tools.processes.Processes;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.locks.LockSupport;
import org.bytedeco.javacpp.Loader;
import org.bytedeco.pytorch.global.torch;
import picocli.CommandLine;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Spec;

/**
 * A command with one rank per process, which starts the processes itself unless a launcher has.
 *
 * <p>Each rank computes with as many threads as its share of the host's processors.
 */
abstract class Ranks implements Callable<Integer> {
  private static final int DEFAULT_PROCESSES = 2;
  private static final Duration TIMEOUT = Duration.ofMinutes(2);
  private static final Duration GRACE = Duration.ofSeconds(10);
  private static final Duration POLL_INTERVAL = Duration.ofMillis(20);

  @Option(
      names = {"-h", "--help"},
      usageHelp = true,
      description = "print this help and exit")
  boolean help;

  @Option(
      names = "--procs",
      paramLabel = "N",
      description =
          "start N processes of this command on this host, one rank each (default: 2, unless"
              + " started by mpirun, torchrun --no-python or srun)")
  Integer procs;

  @Option(
      names = "--backend",
      paramLabel = "NAME",
      description = "auto, nccl or reference (default: auto, NCCL where a GPU is usable)")
  BackendName backend = BackendName.auto;

  @Option(names = "--child", hidden = true)
  boolean child;

  @Spec CommandSpec spec;

  /** The backends, by their names on the command line. */
  enum BackendName {
    auto,
    nccl,
    reference
  }

  /** Runs one rank, and returns the exit status. */
  abstract int run(Communicator comm) throws IOException;

  /** Rejects invalid option values before any process is started. */
  void check(int ranks) {
    // By default any number of ranks is allowed.
  }

  /** Runs a command according to its arguments and the environment, and exits. */
  static void main(Ranks command, String... args) {
    CommandLine line = OptionValue.convert(new CommandLine(command));
    line.setExecutionExceptionHandler(
        (failure, of, parsed) -> {
          String message = failure.getMessage() == null ? failure.toString() : failure.getMessage();
          of.getErr().println(of.getCommandName() + ": " + message);
          // For example contradicting launcher variables.
          return failure instanceof IllegalArgumentException
              ? CommandLine.ExitCode.USAGE
              : Commands.FAILED;
        });
    line.setParameterExceptionHandler((refusal, _) -> Commands.refused(line, refusal));
    System.exit(Commands.written(line, System.out, line.execute(args)));
  }

  @Override
  public final Integer call() throws IOException {
    LaunchEnvironment launch = LaunchEnvironment.current();
    boolean startsProcesses = !child && launch.launcher() == Launcher.NONE;
    if (procs != null && (procs < 1 || procs > Processes.most())) {
      throw badArgument(
          "--procs is %d; it must be from 1 to %d, %d for each processor"
              .formatted(procs, Processes.most(), Processes.PER_PROCESSOR));
    }
    if (!startsProcesses && !child && procs != null) {
      throw badArgument(
          "--procs is %d, but this is rank %d of %d; omit it, or start without a launcher"
              .formatted(procs, launch.rank(), launch.size()));
    }
    int ranks = startsProcesses ? procs == null ? DEFAULT_PROCESSES : procs : launch.size();
    check(ranks);
    return startsProcesses && ranks > 1 ? start(ranks) : join(launch);
  }

  private int start(int ranks) throws IOException {
    List<String> args = spec.commandLine().getParseResult().originalArgs();
    List<String> command = Processes.ownCommand(args.size());
    command.addAll(args);
    command.add("--child");
    return new Processes(spec.name(), 1, GRACE, System.err).run(ranks, command, null);
  }

  private int join(LaunchEnvironment launch) throws IOException {
    if (child) {
      Processes.endWithParent();
    }
    loadTorch();
    int localSize = launch.localSize().orElse(launch.size());
    torch.set_num_threads(Math.max(1, Runtime.getRuntime().availableProcessors() / localSize));
    int[] status = new int[1];
    Backend.RankBody<IOException> body = comm -> status[0] = run(comm);
    try (Backend opened = open()) {
      if (launch.launcher() == Launcher.NONE) {
        opened.runRanks(1, body);
      } else {
        launch.runRanks(opened, body);
      }
    }
    return status[0];
  }

  /**
   * Loads PyTorch, first in one process only. JavaCPP unpacks and loads its libraries one by one,
   * so a process might otherwise load a library whose dependency another process is still writing.
   */
  private static void loadTorch() throws IOException {
    Path lock = Loader.getCacheDir().toPath().resolve("nccl4j.lock");
    try (FileChannel channel =
        FileChannel.open(
            lock, StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
      // Closing the channel releases the lock.
      if (channel.tryLock() == null) {
        awaitOther(channel, lock);
      }
      Loader.load(torch.class);
    }
  }

  private static void awaitOther(FileChannel channel, Path lock) throws IOException {
    long start = System.nanoTime();
    while (channel.tryLock(0, Long.MAX_VALUE, true) == null) {
      if (System.nanoTime() - start > TIMEOUT.toNanos()) {
        throw new IOException(
            "another process has held the lock %s for %d s without loading PyTorch"
                .formatted(lock, TIMEOUT.toSeconds()));
      }
      LockSupport.parkNanos(POLL_INTERVAL.toNanos());
    }
  }

  private Backend open() {
    return switch (backend) {
      case auto -> Backend.auto();
      case nccl -> Backend.nccl();
      case reference -> Backend.reference(1);
    };
  }

  final ParameterException badArgument(String message) {
    return new ParameterException(spec.commandLine(), message);
  }
}
