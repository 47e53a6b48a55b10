package io.nccl4j.tools.perf;

import io.nccl4j.rendezvous.LaunchEnvironment;
import io.nccl4j.rendezvous.Rendezvous;
import java.time.Duration;
import java.util.Map;

/**
 * Which of the processes of a run this one is. All of them have the same command line and the same
 * number of ranks: those of process 0 come first.
 */
final class Job {
  /** How long the processes wait for each other at the start. */
  private static final Duration MEETING = Duration.ofMinutes(2);

  private final LaunchEnvironment launch;

  private Job(LaunchEnvironment launch) {
    this.launch = launch;
  }

  /**
   * Returns what a launcher has left in the environment; without one, this is the only process.
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

  /** Returns this process's number, from 0 on. */
  int process() {
    return launch.rank();
  }

  /** Returns how many processes there are. */
  int processes() {
    return launch.size();
  }

  /** Returns whether there are no other processes. */
  boolean alone() {
    return processes() == 1;
  }

  /** Returns whether this process writes the table and the files. */
  boolean writes() {
    return process() == 0;
  }

  /** Returns this process's number among those of its host; all are, where nothing else is told. */
  int localProcess() {
    return launch.localRank().orElse(process());
  }

  /** Returns how many processes are on this host, as far as is known. */
  int localProcesses() {
    return launch.localSize().orElse(processes());
  }

  /** Returns where the processes meet, for the caller to close. */
  Rendezvous rendezvous() {
    return launch.rendezvous(MEETING);
  }

  /** Says who this process is, for a message. */
  String describe() {
    return "process %d of %d, started by %s".formatted(process(), processes(), launch.launcher());
  }
}
