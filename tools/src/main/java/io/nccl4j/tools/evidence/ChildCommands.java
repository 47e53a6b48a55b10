package io.nccl4j.tools.evidence;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Makes the commands of steps whose programs run in {@link Child}.
 *
 * @param work the directory of the run, for reports and rendezvous
 * @param nccl the path of libnccl, or an empty string to search for it
 * @param cudart the path of libcudart, or an empty string to search for it
 * @param quick whether programs measure and compare less
 * @param environment the environment variables of the run
 */
record ChildCommands(
    Path work, String nccl, String cudart, boolean quick, Map<String, String> environment) {
  /**
   * Returns the command of one process.
   *
   * @param step the name of its step
   * @param label its label, unique in the step
   * @param variables environment variables to set
   * @param arguments the program and its arguments
   */
  Step.Command process(
      String step, String label, Map<String, String> variables, List<String> arguments) {
    Path report = work.resolve(step + "." + label.replace(' ', '-') + ".json");
    List<String> words =
        new ArrayList<>(
            Java.command(
                Child.class.getName(),
                "-Dio.nccl4j.nccl.library=" + nccl,
                "-Dio.nccl4j.cudart.library=" + cudart,
                StepRunner.crashFile(work)));
    words.removeIf(word -> word.endsWith(".library="));
    words.addAll(arguments);
    words.addAll(List.of("--report", report.toString()));
    if (quick) {
      words.add("--quick");
    }
    Map<String, String> all = withNcclWarnings(variables);
    all.put("CLASSPATH", Java.classPath());
    return new Step.Command(label, List.copyOf(words), all, report);
  }

  /** Returns the command of a process with one rank, which meets the others in a file. */
  Step.Command rank(
      String step,
      int rank,
      int size,
      int device,
      Map<String, String> variables,
      List<String> program) {
    List<String> arguments = new ArrayList<>(program);
    arguments.addAll(List.of("--rank", "" + rank, "--size", "" + size, "--device", "" + device));
    arguments.addAll(List.of("--meet", "" + work.resolve(step)));
    return process(step, "rank " + rank, variables, arguments);
  }

  /** Adds the variable that has NCCL print why a call fails, unless it is already set. */
  Map<String, String> withNcclWarnings(Map<String, String> variables) {
    Map<String, String> all = new LinkedHashMap<>(variables);
    if (!environment.containsKey("NCCL_DEBUG")) {
      all.putIfAbsent("NCCL_DEBUG", "WARN");
    }
    return all;
  }
}
