package io.nccl4j.tools.evidence;

import io.nccl4j.tools.cli.JsonTree;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * All that one page has to show: the steps of one run, or of several on the same kind of machine.
 *
 * @param origin when the last run began, and what of
 * @param quick whether sizes and repetitions were cut down
 * @param machine what it ran on, as far as that was found out
 * @param steps in the order of the plan
 */
record Run(RunSource source, boolean quick, Machine machine, List<Recorded> steps) {
  /**
   * Which run a step is of.
   *
   * @param date when the run began, in UTC
   * @param build what nccl4j was built from
   * @param versions those of what may differ between the runs of one page
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

  /** A step and the run that it is of. */
  record Recorded(Outcome outcome, RunSource source) {
    String name() {
      return outcome.step().name();
    }

    private Map<String, Object> tree() {
      Map<String, Object> tree = new LinkedHashMap<>(outcome.tree());
      tree.putAll(source.tree());
      return tree;
    }

    @SuppressWarnings("unchecked") // The other side of tree().
    private static Recorded of(Object tree) {
      return new Recorded(
          Outcome.of((Map<String, Object>) tree), RunSource.of((Map<String, Object>) tree));
    }
  }

  String device() {
    return machine.usable() ? machine.device() : "no usable GPU";
  }

  String ncclVersion() {
    return machine.usable() ? machine.nccl() : "not loaded";
  }

  boolean standIn() {
    return machine.standIn();
  }

  List<Outcome> outcomes() {
    return steps.stream().map(Recorded::outcome).toList();
  }

  boolean passed() {
    return outcomes().stream().noneMatch(outcome -> outcome.status().bad());
  }

  /** Returns this run with those steps of an earlier one that this one does not have. */
  Run over(List<Recorded> earlier) {
    Map<Integer, Recorded> all = new TreeMap<>();
    for (Recorded step : earlier) {
      all.put(EvidencePlan.NAMES.indexOf(step.name()), step);
    }
    for (Recorded step : steps) {
      all.put(EvidencePlan.NAMES.indexOf(step.name()), step);
    }
    return new Run(source, quick, machine, List.copyOf(all.values()));
  }

  /** Returns what the runs of one page have in common. */
  private Map<String, Object> common() {
    return JsonTree.object(
        "quick", quick,
        "stand_in", standIn(),
        "device", device(),
        "devices", (long) machine.devices(),
        "nccl", ncclVersion());
  }

  Map<String, Object> tree() {
    Map<String, Object> tree = JsonTree.object("format", 2);
    tree.putAll(source.tree());
    tree.putAll(common());
    if (standIn()) {
      tree.put("stand_in_is", "a test fixture, not NCCL, no GPU");
    }
    tree.put("passed", passed());
    tree.put("steps", steps.stream().map(Recorded::tree).toList());
    return tree;
  }

  /**
   * What an earlier run into the same folder has left.
   *
   * @param common what all runs of one page have in common
   */
  record Earlier(Map<String, Object> common, List<Recorded> steps) {
    static final Earlier NONE = new Earlier(Map.of(), List.of());

    /**
     * Reads the JSON of a run.
     *
     * @throws IOException if it is none of this format
     */
    static Earlier read(Path json) throws IOException {
      if (!(JsonTree.parse(Files.readString(json)) instanceof Map<?, ?> tree)
          || !Long.valueOf(2).equals(tree.get("format"))) {
        throw new IOException(json + " is no evidence of this format");
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
        // A field that is missing or of another kind comes out as one of several.
        throw new IOException(json + " has a step that cannot be read: " + e.getMessage(), e);
      }
      return new Earlier(common, steps);
    }

    /** Says in what a run differs that cannot be on one page with this one; or an empty text. */
    String difference(Run run) {
      Map<String, Object> here = run.common();
      return common.keySet().stream()
          .filter(name -> !common.get(name).equals(here.get(name)))
          .findFirst()
          .map(
              name ->
                  "OUT has steps of a run where %s is %s, here it is %s; name another folder"
                      .formatted(name, common.get(name), here.get(name)))
          .orElse("");
    }
  }
}
