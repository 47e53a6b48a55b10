package io.nccl4j.tools.perf;

import io.nccl4j.Backend;
import io.nccl4j.Device;
import io.nccl4j.tools.cli.Within;
import io.nccl4j.tools.processes.Processes;
import java.util.List;
import java.util.Map;
import picocli.CommandLine.Option;

/** The options for the number of ranks, and their threads and processes. */
final class RankOptions {
  @Option(
      names = "--ranks",
      paramLabel = "N",
      description = "ranks in each process, over all its threads")
  @Within(least = 1, most = 4096)
  Integer ranks;

  @Option(
      names = "--procs",
      paramLabel = "N",
      description =
          "start N processes of this command on this host. Without -t, -g and --ranks, each has one rank; a single process has as many as without --procs")
  Integer procs;

  @Option(
      names = "--limit",
      paramLabel = "SECONDS",
      description = "with --procs, the time limit for all of them; default: none")
  @Within(least = 1)
  Integer limit;

  @Option(
      names = "--child",
      hidden = true,
      description = "this process was started by --procs, and exits with its parent")
  boolean child;

  @Option(
      names = {"-t", "--nthreads"},
      paramLabel = "N",
      description = "threads that enqueue operations; default 1")
  @Within(least = 1, most = 4096)
  Integer threads;

  @Option(
      names = {"-g", "--ngpus"},
      paramLabel = "N",
      description = "ranks per thread: GPUs, or devices of the reference backend")
  @Within(least = 1, most = 4096)
  Integer ngpus;

  /** Checks the options without a backend. */
  void check() {
    if (ranks != null && ngpus != null && ranks != enqueueThreads() * ngpus) {
      throw new BadArguments(
          "--ranks is %d and -t times -g is %d; give only one of the two, or make them equal"
              .formatted(ranks, enqueueThreads() * ngpus));
    }
    if (ranks != null && ranks % enqueueThreads() != 0) {
      throw new BadArguments(
          "--ranks is %d; it must be a multiple of -t, %d".formatted(ranks, enqueueThreads()));
    }
    if (limit != null && procs == null) {
      throw new BadArguments("--limit needs --procs; -T limits the waits of a single process");
    }
    int max = Processes.most();
    if (procs != null && (procs < 1 || procs > max)) {
      throw new BadArguments(
          "--procs is %d; it must be from 1 to %d, %d per processor"
              .formatted(procs, max, Processes.PER_PROCESSOR));
    }
  }

  /** Returns the number of threads of a process that enqueue operations. */
  int enqueueThreads() {
    return threads == null ? 1 : threads;
  }

  /** Returns the number of ranks per process that the command line gives, or 0 if it gives none. */
  int requested() {
    if (ranks != null) {
      return ranks;
    }
    return threads == null && ngpus == null ? 0 : enqueueThreads() * (ngpus == null ? 1 : ngpus);
  }

  /** Returns the number of ranks of a process, given the devices of a backend. */
  int ofProcess(Job job, List<Device> devices) {
    int requested = requested();
    return requested > 0 ? requested : job.alone() ? devices.size() : 1;
  }

  /**
   * Returns the GPU of a process's first rank.
   *
   * @throws BadArguments if ranks would have to share a GPU and NCCL does not allow it
   */
  static int firstGpu(Backend opened, Job job, int count, Map<String, String> environment) {
    int gpus = opened.devices().size();
    int onHost = count * job.localProcesses();
    // Launchers may restrict each process to its own GPUs.
    boolean ownOnly = !job.alone() && count == gpus;
    if (onHost > gpus && !ownOnly) {
      String refusal = SharedGpus.refusal(Versions.of(opened).get("nccl"), environment);
      if (!refusal.isEmpty()) {
        throw new BadArguments(
            "%s requested%s but there %s; %s"
                .formatted(
                    onHost == 1 ? "1 rank" : onHost + " ranks",
                    job.alone() ? "" : " on this host",
                    gpus == 1 ? "is 1 GPU" : "are " + gpus + " GPUs",
                    refusal));
      }
    }
    return onHost > gpus && ownOnly ? 0 : count * job.localProcess();
  }
}
