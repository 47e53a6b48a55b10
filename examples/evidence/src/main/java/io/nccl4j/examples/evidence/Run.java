package io.nccl4j.examples.evidence;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * All that one run has to show.
 *
 * @param date when it began, in UTC
 * @param build what nccl4j was built from
 * @param quick whether sizes and repetitions were cut down
 * @param machine what it ran on, as far as that was found out
 * @param outcomes the steps, in the order in which they ran
 */
record Run(String date, String build, boolean quick, Machine machine, List<Outcome> outcomes) {
  String device() {
    return machine.usable() ? machine.device() : "no usable GPU";
  }

  String ncclVersion() {
    return machine.usable() ? machine.nccl() : "not loaded";
  }

  boolean standIn() {
    return machine.standIn();
  }

  boolean passed() {
    return outcomes.stream().noneMatch(outcome -> outcome.status().bad());
  }

  Map<String, Object> tree() {
    Map<String, Object> tree = new LinkedHashMap<>();
    tree.put("format", 1);
    tree.put("date", date);
    tree.put("build", build);
    tree.put("quick", quick);
    tree.put("stand_in", standIn());
    if (standIn()) {
      tree.put("stand_in_is", "a test fixture, not NCCL, no GPU");
    }
    tree.put("device", device());
    tree.put("nccl", ncclVersion());
    tree.put("passed", passed());
    tree.put("steps", outcomes.stream().map(Outcome::tree).toList());
    return tree;
  }
}
