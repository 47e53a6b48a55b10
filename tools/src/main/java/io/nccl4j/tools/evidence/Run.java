package io.nccl4j.tools.evidence;

import io.nccl4j.tools.cli.JsonTree;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeMap;

/**
 * The contents of one page: the steps of one run, or of several on the same kind of machine.
 *
 * @param source the last run
 * @param quick whether sizes and repetitions were reduced
 * @param machine the machine
 * @param steps the steps, in the order of the plan
 */
record Run(RunSource source, boolean quick, Machine machine, List<Recorded> steps) {
  private static final Long FORMAT = 3L;

  private static final String UNKNOWN = "device not known";

  private static final Set<Outcome.Status> UNFINISHED =
      EnumSet.of(Outcome.Status.RUNNING, Outcome.Status.NOT_RUN, Outcome.Status.TIMED_OUT);

  /**
   * The run that a step belongs to.
   *
   * @param date when the run began, in UTC
   * @param build the version and commit of nccl4j
   * @param versions the versions that may differ between the runs of one page
   */
  record RunSource(String date, String build, String versions) {
    private static final List<String> NAMES = List.of("date", "build", "versions");

    private Map<String, Object> tree() {
      return JsonTree.object("date", date, "build", build, "versions", versions);
    }

    private static RunSource of(Map<?, ?> tree) {
      List<String> values = NAMES.stream().map(name -> (String) tree.get(name)).toList();
      return new RunSource(values.get(0), values.get(1), values.get(2));
    }
  }

  /** A step and the run that it belongs to. */
  record Recorded(Outcome outcome, RunSource source) {
    String name() {
      return outcome.step().name();
    }

    private Map<String, Object> tree() {
      Map<String, Object> tree = new LinkedHashMap<>(outcome.tree());
      tree.putAll(source.tree());
      return tree;
    }

    /** Returns whether the step has run to its end, or cannot run. */
    boolean hasResult() {
      Outcome.Status status = outcome.status();
      return status != Outcome.Status.RUNNING && status != Outcome.Status.NOT_RUN;
    }

    @SuppressWarnings("unchecked") // The other side of tree().
    private static Recorded of(Object tree) {
      return new Recorded(
          Outcome.of((Map<String, Object>) tree), RunSource.of((Map<String, Object>) tree));
    }
  }

  String device() {
    if (machine.usable()) {
      return machine.device();
    }
    // Only a first step that has run to its end knows.
    boolean unknown = outcomes().stream().map(Outcome::status).anyMatch(UNFINISHED::contains);
    return unknown ? UNKNOWN : "no usable GPU";
  }

  String ncclVersion() {
    return machine.usable() ? machine.nccl() : "not loaded";
  }

  List<Outcome> outcomes() {
    return steps.stream().map(Recorded::outcome).toList();
  }

  boolean passed() {
    return outcomes().stream().noneMatch(outcome -> outcome.status().bad());
  }

  /**
   * Returns this run with the steps of an earlier run that this one does not have, or of which it
   * has no result.
   */
  Run mergedWith(List<Recorded> earlier) {
    Map<Integer, Recorded> all = new TreeMap<>();
    for (Recorded step : earlier) {
      all.put(EvidencePlan.NAMES.indexOf(step.name()), step);
    }
    for (Recorded step : steps) {
      int place = EvidencePlan.NAMES.indexOf(step.name());
      Recorded before = all.get(place);
      if (step.hasResult() || before == null || !before.hasResult()) {
        all.put(place, step);
      }
    }
    return new Run(source, quick, machine, List.copyOf(all.values()));
  }

  /** Returns the properties that all runs of one page have in common. */
  private Map<String, Object> common() {
    return JsonTree.object(
        "quick", quick,
        "gpu", machine.hasGpus(),
        "libraries", machine.libraries().description(),
        "device", device(),
        "devices", (long) machine.devices(),
        "nccl", ncclVersion());
  }

  Map<String, Object> tree() {
    Map<String, Object> tree = JsonTree.object("format", FORMAT);
    tree.putAll(source.tree());
    tree.putAll(common());
    tree.put("passed", passed());
    tree.put("steps", steps.stream().map(Recorded::tree).toList());
    return tree;
  }

  /**
   * The results of an earlier run in the same directory.
   *
   * @param common the properties that all runs of one page have in common
   * @param steps its steps
   */
  record Earlier(Map<String, Object> common, List<Recorded> steps) {
    static final Earlier NONE = new Earlier(Map.of(), List.of());

    /**
     * Reads the JSON of a run.
     *
     * @throws IOException if it is not in this format
     */
    static Earlier read(Path json) throws IOException {
      if (!(JsonTree.parse(Files.readString(json)) instanceof Map<?, ?> tree)
          || !FORMAT.equals(tree.get("format"))) {
        throw new IOException(json + " is not evidence in this format");
      }
      Map<String, Object> common = new LinkedHashMap<>();
      for (String name :
          new Run(new RunSource("", "", ""), false, Machine.NONE, List.of()).common().keySet()) {
        common.put(name, tree.get(name));
      }
      List<Recorded> steps = new ArrayList<>();
      try {
        for (Object step : (List<?>) tree.get("steps")) {
          steps.add(Recorded.of(step));
        }
        steps.removeIf(step -> !EvidencePlan.NAMES.contains(step.name()));
      } catch (RuntimeException e) {
        // A missing field, or one of another type, causes one of several exceptions.
        throw new IOException(json + " has a step that cannot be read: " + e.getMessage(), e);
      }
      return UNKNOWN.equals(common.get("device")) ? NONE : new Earlier(common, steps);
    }

    /** Describes why a run cannot be on one page with this one; empty if it can. */
    String difference(Run run) {
      Map<String, Object> here = run.common();
      return common.keySet().stream()
          .filter(name -> !Objects.equals(common.get(name), here.get(name)))
          .findFirst()
          .map(
              name ->
                  "OUT has steps of a run where %s is %s, here it is %s; use another directory"
                      .formatted(name, common.get(name), here.get(name)))
          .orElse("");
    }
  }
}
