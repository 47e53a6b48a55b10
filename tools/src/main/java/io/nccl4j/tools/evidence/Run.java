package io.nccl4j.tools.evidence;

import io.nccl4j.tools.cli.JsonTree;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * The contents of one page.
 *
 * @param date when the run began, in UTC
 * @param build the version and commit of nccl4j
 * @param quick whether sizes and repetitions were reduced
 * @param machine the machine
 * @param steps the steps so far, in the order of the plan
 */
record Run(String date, String build, boolean quick, Machine machine, List<Outcome> steps) {
  private static final Set<Outcome.Status> UNFINISHED =
      EnumSet.of(Outcome.Status.RUNNING, Outcome.Status.NOT_RUN, Outcome.Status.TIMED_OUT);

  String device() {
    if (machine.usable()) {
      return machine.device();
    }
    // Only a first step that has run to its end knows.
    boolean unknown = steps.stream().map(Outcome::status).anyMatch(UNFINISHED::contains);
    return unknown ? "device not known" : "no usable GPU";
  }

  String ncclVersion() {
    return machine.usable() ? machine.nccl() : "not loaded";
  }

  boolean passed() {
    return steps.stream().noneMatch(outcome -> outcome.status().bad());
  }

  /** Returns the number of steps with each result, for the page and the terminal. */
  String verdict() {
    long passed = count(Outcome.Status.PASSED);
    long impossible = count(Outcome.Status.NOT_POSSIBLE);
    long unfinished = count(Outcome.Status.NOT_RUN) + count(Outcome.Status.RUNNING);
    long failed = steps.size() - passed - impossible - unfinished;
    return "%d steps: %d passed, %d not possible here, %d failed"
            .formatted(steps.size(), passed, impossible, failed)
        + (unfinished == 0 ? "" : ", %d not run to the end".formatted(unfinished));
  }

  private long count(Outcome.Status status) {
    return steps.stream().filter(outcome -> outcome.status() == status).count();
  }

  Map<String, Object> tree() {
    return JsonTree.object(
        "date", date,
        "build", build,
        "quick", quick,
        "gpu", machine.hasGpus(),
        "libraries", machine.libraries().description(),
        "device", device(),
        "devices", (long) machine.devices(),
        "nccl", ncclVersion(),
        "passed", passed(),
        "steps", steps.stream().map(Outcome::tree).toList());
  }
}
