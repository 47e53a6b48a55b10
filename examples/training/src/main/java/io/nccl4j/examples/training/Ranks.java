package io.nccl4j.examples.training;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.rendezvous.LaunchEnvironment;
import io.nccl4j.rendezvous.Launcher;
import io.nccl4j.rendezvous.Rendezvous;
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
 * A command with one rank per process: it starts the processes itself, or a launcher has.
 *
 * <p>A rank computes on as many threads as leave each rank of its host its share of processors.
 */
abstract class Ranks implements Callable<Integer> {
  private static final int DEFAULT_PROCESSES = 2;
  private static final Duration MEETING = Duration.ofMinutes(2);
  private static final Duration GRACE = Duration.ofSeconds(10);
  private static final Duration LOOK = Duration.ofMillis(20);

  @Option(
      names = {"-h", "--help"},
      usageHelp = true,
      description = "print this and end")
  boolean help;

  @Option(
      names = "--procs",
      paramLabel = "N",
      description =
          "start N processes of this command on this host, one rank each (default: 2, unless mpirun,"
              + " torchrun --no-python or srun has started this one)")
  Integer procs;

  @Option(
      names = "--backend",
      paramLabel = "NAME",
      description = "auto, nccl or reference (default: auto, NCCL where a GPU is usable)")
  BackendName backend = BackendName.auto;

  @Option(names = "--child", hidden = true)
  boolean child;

  @Spec CommandSpec spec;

  /** The backends, as the command line names them. */
  enum BackendName {
    auto,
    nccl,
    reference
  }

  /** Does what one rank does, and returns the exit status. */
  abstract int run(Communicator comm);

  /** Refuses values that cannot be, before any process is started. */
  void check(int ranks) {
    // Most commands do with any number of ranks.
  }

  /**
   * Runs a command in the way that its arguments and the environment say, and ends this process.
   */
  static void main(Ranks command, String... args) {
    CommandLine line = new CommandLine(OptionValue.spec(command));
    line.setExecutionExceptionHandler(
        (failure, of, parsed) -> {
          String message = failure.getMessage() == null ? failure.toString() : failure.getMessage();
          of.getErr().println(of.getCommandName() + ": " + message);
          // Such as a launcher's variables that contradict each other.
          return failure instanceof IllegalArgumentException
              ? CommandLine.ExitCode.USAGE
              : Processes.FAILED;
        });
    line.setParameterExceptionHandler((refusal, _) -> Commands.refused(line, refusal));
    System.exit(Commands.written(line, System.out, line.execute(args)));
  }

  @Override
  public final Integer call() throws IOException {
    LaunchEnvironment launch = LaunchEnvironment.current();
    boolean starts = !child && launch.launcher() == Launcher.NONE;
    if (procs != null && (procs < 1 || procs > Processes.most())) {
      throw refused(
          "--procs is %d; it must be from 1 to %d, %d for each processor"
              .formatted(procs, Processes.most(), Processes.PER_PROCESSOR));
    }
    if (!starts && !child && procs != null) {
      throw refused(
          "--procs is %d, but this is rank %d of %d; leave it out, or start the command without a launcher"
              .formatted(procs, launch.rank(), launch.size()));
    }
    int ranks = starts ? procs == null ? DEFAULT_PROCESSES : procs : launch.size();
    check(ranks);
    return starts && ranks > 1 ? start(ranks) : join(launch);
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
    int here = launch.localSize().orElse(launch.size());
    torch.set_num_threads(Math.max(1, Runtime.getRuntime().availableProcessors() / here));
    try (Backend opened = open();
        Rendezvous rendezvous = launch.rendezvous(MEETING);
        Communicator comm = rendezvous.newCommunicator(opened, CommunicatorConfig.defaults())) {
      return run(comm);
    }
  }

  /**
   * Loads PyTorch, one process before the others. JavaCPP unpacks its libraries one by one and
   * loads each, so that a process may load what needs a library that another is still writing.
   */
  private static void loadTorch() throws IOException {
    Path lock = Loader.getCacheDir().toPath().resolve("nccl4j.lock");
    try (FileChannel channel =
        FileChannel.open(
            lock, StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
      // Closing the channel lets go of it.
      if (channel.tryLock() == null) {
        awaitOther(channel, lock);
      }
      Loader.load(torch.class);
    }
  }

  private static void awaitOther(FileChannel channel, Path lock) throws IOException {
    long since = System.nanoTime();
    while (channel.tryLock(0, Long.MAX_VALUE, true) == null) {
      if (System.nanoTime() - since > MEETING.toNanos()) {
        throw new IOException(
            "another process has kept %s for %d s and should have loaded PyTorch by now"
                .formatted(lock, MEETING.toSeconds()));
      }
      LockSupport.parkNanos(LOOK.toNanos());
    }
  }

  private Backend open() {
    return switch (backend) {
      case auto -> Backend.auto();
      case nccl -> Backend.nccl();
      case reference -> Backend.reference(1);
    };
  }

  final ParameterException refused(String message) {
    return new ParameterException(spec.commandLine(), message);
  }
}
