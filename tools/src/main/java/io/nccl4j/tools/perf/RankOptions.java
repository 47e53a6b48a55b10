package io.nccl4j.tools.perf;

import io.nccl4j.Backend;
import io.nccl4j.Device;
import io.nccl4j.tools.processes.Processes;
import java.util.List;
import java.util.Map;
import picocli.CommandLine.Option;

/** The options that say how many ranks there are, in which threads and processes. */
final class RankOptions {
  @Option(
      names = "--ranks",
      paramLabel = "N",
      description = "how many ranks, in all threads of a process together")
  Integer ranks;

  @Option(
      names = "--procs",
      paramLabel = "N",
      description =
          "start N processes of this command on this host. Without -t, -g and --ranks each has one rank; 1 process has those of a run without --procs")
  Integer procs;

  @Option(
      names = "--limit",
      paramLabel = "SECONDS",
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
      description = "threads that enqueue; default 1")
  Integer threads;

  @Option(
      names = {"-g", "--ngpus"},
      paramLabel = "N",
      description = "ranks of each thread: GPUs, or devices of the reference backend")
  Integer ngpus;

  /** Checks what needs no backend to be checked. */
  void check() {
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
    if (limit != null && procs == null) {
      throw new BadArguments("--limit is for --procs; -T is the longest wait of a process");
    }
    if (limit != null) {
      BadArguments.checkAtLeast(1, limit, "--limit");
    }
    int most = Processes.most();
    if (procs != null && (procs < 1 || procs > most)) {
      throw new BadArguments(
          "--procs is %d; it must be from 1 to %d, %d for each processor"
              .formatted(procs, most, Processes.PER_PROCESSOR));
    }
  }

  /** Returns how many threads of a process enqueue. */
  int driverThreads() {
    return threads == null ? 1 : threads;
  }

  /**
   * Returns how many ranks the command line asks for in a process, or 0 where it leaves that open.
   */
  int askedFor() {
    if (ranks != null) {
      return ranks;
    }
    return threads == null && ngpus == null ? 0 : driverThreads() * (ngpus == null ? 1 : ngpus);
  }

  /** Returns how many ranks a process has, given the devices of a backend. */
  int ofProcess(Job job, List<Device> devices) {
    int wanted = askedFor();
    return wanted > 0 ? wanted : job.alone() ? devices.size() : 1;
  }

  /** Returns the GPU of a process's first rank: mostly each rank of a host needs its own. */
  static int firstGpu(Backend opened, Job job, int count, Map<String, String> environment) {
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
}
