package io.nccl4j.examples.evidence;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;

/**
 * The library's own contract suite, topic by topic, each in a process of its own: an error that
 * spoils the GPU for a process, a crash or a hang then costs one topic.
 */
final class ContractSuite {
  /** The class whose nested classes are the topics. */
  static final String NESTED_IN = "io.nccl4j.contract.ContractSuite";

  static final String PASSED = "passed";
  static final String FAILED = "failed";
  static final String SKIPPED = "skipped";

  private static final List<String> FEW_TOPICS = List.of("Backends", "Groups", "PointToPoint");

  /** Those of which most tests leave it open where the other ranks are. */
  private static final List<String> TOPICS_ACROSS_PROCESSES =
      List.of("PointToPoint", "Collectives", "Groups", "PreMulSum", "Split");

  private static final int LONGEST_TOPIC_SECONDS = 60;
  private static final String LOG = "topic.log";
  private static final String CALLED = "called.txt";

  private final Child child;
  private final StepRunner runner;
  private final Path work;
  private final List<List<Object>> rows = new ArrayList<>();
  private final Map<String, Long> counts = new LinkedHashMap<>();
  private final List<String> bad = new ArrayList<>();

  private ContractSuite(Child child, StepRunner runner, Path work) {
    this.child = child;
    this.runner = runner;
    this.work = work;
  }

  static void run(Child child) throws IOException, ClassNotFoundException {
    Path work = Files.createTempDirectory(child.report.toAbsolutePath().getParent(), "contract");
    try (StepRunner runner = new StepRunner(work, work.resolve(LOG))) {
      ContractSuite suite = new ContractSuite(child, runner, work);
      for (String topic : suite.chosen()) {
        suite.add(topic);
      }
      suite.finish();
    }
  }

  private List<String> chosen() throws ClassNotFoundException {
    if (child.meet != null) {
      return child.quick ? TOPICS_ACROSS_PROCESSES.subList(0, 1) : TOPICS_ACROSS_PROCESSES;
    }
    return child.quick ? FEW_TOPICS : topics();
  }

  /** Returns the topics; which there are, the suite knows. */
  static List<String> topics() throws ClassNotFoundException {
    List<String> topics = new ArrayList<>();
    // Not initialised: the suite's fields may want a GPU.
    Class<?> suite = Class.forName(NESTED_IN, false, ContractSuite.class.getClassLoader());
    for (Class<?> topic : suite.getDeclaredClasses()) {
      topics.add(topic.getSimpleName());
    }
    topics.sort(String::compareTo);
    return topics;
  }

  private void add(String topic) throws IOException {
    Outcome outcome = runner.run(step(topic), child.left());
    Path log = work.resolve(LOG);
    if (Files.exists(log)) {
      System.out.print(Files.readString(log));
      Files.delete(log);
    }
    Map<String, String> facts = outcome.report().facts();
    List<Object> row = new ArrayList<>(List.of(topic, outcome.status().label()));
    for (String count : List.of(PASSED, FAILED, SKIPPED)) {
      long tests = Long.parseLong(facts.getOrDefault(count, "0"));
      counts.merge(count, tests, Long::sum);
      row.add(tests);
    }
    row.add(Table.rounded(outcome.seconds(), 1));
    rows.add(row);
    if (outcome.status().bad()) {
      bad.add(topic);
    }
    if (outcome.status() == Outcome.Status.CRASHED
        || outcome.status() == Outcome.Status.TIMED_OUT) {
      child.note(topic + ": " + outcome.report().summary());
    }
    outcome.report().notes().forEach(note -> child.note(topic + ": " + note));
    child.saveUnfinished(summary() + ", then " + topic);
  }

  private Step step(String topic) {
    List<String> words =
        new ArrayList<>(
            Java.command(
                Child.class.getName(),
                "-Dio.nccl4j.nccl.library=" + System.getProperty("io.nccl4j.nccl.library"),
                "-Dio.nccl4j.cudart.library=" + System.getProperty("io.nccl4j.cudart.library"),
                // The tests keep a list of the native functions that they call.
                "-Djextract.trace.downcalls=true",
                "-Dtest.downcalls=" + work.resolve(CALLED),
                StepRunner.crashFile(work)));
    Path report = work.resolve(topic + ".json");
    words.addAll(List.of("contract-topic", "--suite", child.suite, "--topic", topic));
    words.addAll(List.of("--size", "" + child.size, "--report", report.toString()));
    words.addAll(List.of("--deadline", "" + LONGEST_TOPIC_SECONDS));
    if (child.meet != null) {
      words.addAll(List.of("--rank", "" + child.rank, "--meet", child.meet.toString()));
    }
    return Step.of(
        topic,
        topic,
        Duration.ofSeconds(LONGEST_TOPIC_SECONDS),
        new Step.Command("process", words, Map.of("CLASSPATH", Java.classPath()), report));
  }

  private String summary() {
    return "%d passed, %d failed, %d skipped"
        .formatted(
            counts.getOrDefault(PASSED, 0L),
            counts.getOrDefault(FAILED, 0L),
            counts.getOrDefault(SKIPPED, 0L));
  }

  private void finish() throws IOException {
    if (Files.exists(work.resolve(CALLED))) {
      child.fact(
          "functionsCalled",
          String.join(" ", new TreeSet<>(Files.readAllLines(work.resolve(CALLED)))));
    }
    child.table(
        new Table(
            "tests of %s by topic, each topic a process".formatted(child.suite),
            List.of("topic", "result", "passed", "failed", "skipped", "seconds"),
            rows));
    if (child.quick) {
      child.note("only these topics of the suite, since the run is a quick one");
    }
    boolean passed = bad.isEmpty() && counts.getOrDefault(PASSED, 0L) > 0;
    child.end(
        passed ? Report.Verdict.PASSED : Report.Verdict.FAILED,
        summary() + (bad.isEmpty() ? "" : "; not passed: " + String.join(", ", bad)));
  }
}
