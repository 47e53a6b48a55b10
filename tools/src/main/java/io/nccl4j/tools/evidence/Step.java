package io.nccl4j.tools.evidence;

import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;

/**
 * One step: processes that run at the same time, and their time limit.
 *
 * @param name a short name, for the command line and for files
 * @param title the heading on the page
 * @param deadline the time after which its processes are killed
 * @param silence the time without a new report after which its processes are killed, or null for no
 *     such limit
 * @param commands the processes; empty if the step is not possible
 * @param impossible why the step is not possible here, or null if it is
 */
record Step(
    String name,
    String title,
    Duration deadline,
    Duration silence,
    List<Command> commands,
    String impossible) {
  /**
   * One process.
   *
   * @param label its label, unique in the step, such as its rank
   * @param words program and arguments; {@code --deadline} is added if it writes a report
   * @param environment variables to set in addition to those of this process
   * @param report where it writes a {@link Report}, or null if it writes none, so that its exit
   *     status and output are its result
   */
  record Command(String label, List<String> words, Map<String, String> environment, Path report) {}

  static Step of(String name, String title, Duration deadline, Command... commands) {
    return new Step(name, title, deadline, null, List.of(commands), null);
  }

  static Step notPossible(String name, String title, String reason) {
    return new Step(name, title, Duration.ZERO, null, List.of(), reason);
  }

  /** Returns this step, or one that is not possible for a reason if a condition holds. */
  Step unless(boolean condition, String reason) {
    return condition && impossible == null ? notPossible(name, title, reason) : this;
  }

  /** Returns this step with another deadline; a step that is not possible is unchanged. */
  Step withDeadline(Duration newDeadline) {
    return impossible == null ? new Step(name, title, newDeadline, silence, commands, null) : this;
  }

  /** Returns this step with a limit on the time without a new report. */
  Step withSilence(Duration newSilence) {
    return new Step(name, title, deadline, newSilence, commands, impossible);
  }
}
