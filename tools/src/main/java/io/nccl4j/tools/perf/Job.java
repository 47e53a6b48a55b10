package io.nccl4j.tools.perf;

import io.nccl4j.rendezvous.LaunchEnvironment;
import io.nccl4j.rendezvous.Rendezvous;
import java.time.Duration;
import java.util.Map;

/**
 * This process's position among the processes of a run. All have the same command line and the same
 * number of ranks; ranks are numbered process by process.
 */
final class Job {
  /** How long the processes wait for each other at the start. */
  static final Duration RENDEZVOUS_TIMEOUT = Duration.ofMinutes(2);

  private final LaunchEnvironment launch;

  private Job(LaunchEnvironment launch) {
    this.launch = launch;
  }

  /**
   * Reads the launcher's variables; without a launcher, this is the only process.
   *
   * @throws BadArguments if the environment contradicts itself
   */
  static Job in(Map<String, String> environment) {
    try {
      return new Job(LaunchEnvironment.from(environment));
    } catch (IllegalArgumentException e) {
      throw new BadArguments(e.getMessage());
    }
  }

  /** Returns this process's number, from 0. */
  int process() {
    return launch.rank();
  }

  /** Returns the number of processes. */
  int processes() {
    return launch.size();
  }

  /** Returns whether this is the only process. */
  boolean alone() {
    return processes() == 1;
  }

  /** Returns whether this process writes the table and the files. */
  boolean writes() {
    return process() == 0;
  }

  /** Returns this process's number on its host; its global number if the launcher does not say. */
  int localProcess() {
    return launch.localRank().orElse(process());
  }

  /** Returns the number of processes on this host; all of them if the launcher does not say. */
  int localProcesses() {
    return launch.localSize().orElse(processes());
  }

  /** Opens the rendezvous of the processes, which the caller closes. */
  Rendezvous rendezvous() {
    return launch.rendezvous(RENDEZVOUS_TIMEOUT);
  }

  /** Describes this process, for a message. */
  String describe() {
    return "process %d of %d, started by %s".formatted(process(), processes(), launch.launcher());
  }
}
