package io.nccl4j.tools.evidence;

import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;

/**
 * One step of the evidence: programs that run at the same time, and how long they may take.
 *
 * @param name a short name, for the command line and for files
 * @param title what the page calls it
 * @param deadline when its processes are killed
 * @param silence how long its processes may write no report before they are killed, or null where
 *     only the deadline counts
 * @param commands what is started; none where the step cannot be
 * @param impossible why the step cannot be here, or null where it can
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
   * @param label what tells it from the other processes of the step, such as its rank
   * @param words program and arguments; a process of ours also gets {@code --deadline}
   * @param environment the variables that it has beyond those of this process
   * @param report where it writes a {@link Report}, or null where it is not ours and its exit
   *     status and output say all
   */
  record Command(String label, List<String> words, Map<String, String> environment, Path report) {}

  static Step of(String name, String title, Duration deadline, Command... commands) {
    return new Step(name, title, deadline, null, List.of(commands), null);
  }

  static Step notPossible(String name, String title, String reason) {
    return new Step(name, title, Duration.ZERO, null, List.of(), reason);
  }

  /** Has processes killed at another deadline; without any there is none. */
  Step withDeadline(Duration newDeadline) {
    return impossible == null ? new Step(name, title, newDeadline, silence, commands, null) : this;
  }

  /** Has processes killed that have written no report for so long. */
  Step withSilence(Duration newSilence) {
    return new Step(name, title, deadline, newSilence, commands, impossible);
  }
}
