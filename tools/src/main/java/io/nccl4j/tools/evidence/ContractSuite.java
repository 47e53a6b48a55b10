package io.nccl4j.tools.evidence;

import java.io.IOException;
import java.lang.reflect.Modifier;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;

/**
 * Runs nccl4j's contract suite. All topics share one process, so that Java, CUDA and NCCL start
 * only once. After a topic that fails, crashes or hangs, the remaining topics run in a new process:
 * an error that makes the GPU unusable for a process affects only one topic.
 */
final class ContractSuite {
  static final String PASSED = "passed";
  static final String FAILED = "failed";
  static final String SKIPPED = "skipped";

  /** The columns of the table of topics. */
  static final List<String> COLUMNS =
      List.of("topic", "result", PASSED, FAILED, SKIPPED, "seconds");

  /** The result of a topic in which the time was up. */
  private static final String UNFINISHED = "not finished";

  private static final int RESULT = 1;

  /** The topics that training needs; the others follow, by name. */
  private static final List<String> FIRST_TOPICS =
      List.of("Collectives", "PointToPoint", "Groups", "Streams", "Buffers", "Graphs", "Lifecycle");

  private static final List<String> FEW_TOPICS = List.of("Backends", "Groups", "PointToPoint");

  /** The topics most of whose tests can run with one rank per process. */
  private static final List<String> TOPICS_ACROSS_PROCESSES =
      List.of("PointToPoint", "Collectives", "Groups", "PreMulSum", "Split");

  /**
   * On a GPU longer than any test that passes, and longer than the 30 s for which one process waits
   * for the other to reach the same test.
   */
  private static final Duration LONGEST_TEST = Duration.ofSeconds(40);

  private static final Duration END_MARGIN = Duration.ofSeconds(2);
  private static final String CALLED = "called.txt";

  private final Child child;
  private final StepRunner runner;
  private final Path work;
  private final List<List<Object>> rows = new ArrayList<>();
  private final List<String> bad = new ArrayList<>();
  private int processes;

  private ContractSuite(Child child, StepRunner runner, Path work) {
    this.child = child;
    this.runner = runner;
    this.work = work;
  }

  static void run(Child child) throws IOException, ClassNotFoundException {
    Path work = Files.createTempDirectory(child.report.toAbsolutePath().getParent(), "contract");
    try (StepRunner runner = StepRunner.inside(work)) {
      ContractSuite suite = new ContractSuite(child, runner, work);
      List<String> left = suite.topicsToRun();
      while (!left.isEmpty() && suite.hasTime()) {
        left = suite.run(left);
      }
      suite.finish(left);
    }
  }

  private List<String> topicsToRun() throws ClassNotFoundException {
    if (!child.topics.isEmpty()) {
      return child.topics;
    }
    if (child.severalProcesses()) {
      return child.quick ? TOPICS_ACROSS_PROCESSES.subList(0, 1) : TOPICS_ACROSS_PROCESSES;
    }
    return child.quick ? FEW_TOPICS : topics(child.suite).keySet().stream().toList();
  }

  /** Returns the inner classes of a suite and its superclasses, by simple name. */
  static Map<String, Class<?>> topics(String suite) throws ClassNotFoundException {
    Map<String, Class<?>> all = new TreeMap<>();
    // Not initialised: static fields of the suite may need a GPU.
    Class<?> declaring = Class.forName(suite, false, ContractSuite.class.getClassLoader());
    while (declaring != null) {
      for (Class<?> nested : declaring.getDeclaredClasses()) {
        if (!Modifier.isStatic(nested.getModifiers())) {
          all.put(nested.getSimpleName(), nested);
        }
      }
      declaring = declaring.getSuperclass();
    }
    Map<String, Class<?>> ordered = new LinkedHashMap<>();
    FIRST_TOPICS.stream()
        .filter(all::containsKey)
        .forEach(name -> ordered.put(name, all.get(name)));
    all.forEach(ordered::putIfAbsent);
    return ordered;
  }

  /** Runs topics in a process, and returns those that it did not reach. */
  private List<String> run(List<String> topics) throws IOException {
    Outcome outcome = runner.run(step(topics));
    processes++;
    outcome.report().tables().stream()
        .filter(table -> table.title().equals(ContractTopics.COMPLETED))
        .flatMap(table -> table.rows().stream())
        .forEach(this::add);
    int ended =
        Math.toIntExact(rows.stream().filter(row -> topics.contains(row.getFirst())).count());
    outcome.report().notes().forEach(child::note);
    child.saveUnfinished(summary());
    List<String> rest = topics.subList(ended, topics.size());
    boolean stopped = ended > 0 && rows.getLast().get(RESULT).equals(Outcome.Status.FAILED.label());
    if (rest.isEmpty() || stopped) {
      return rest;
    }
    String broken = rest.getFirst();
    List<Object> row = brokenRow(broken, outcome, !hasTime());
    add(row);
    if (row.get(RESULT).equals(UNFINISHED)) {
      return rest.subList(1, rest.size());
    }
    child.note(broken + ": " + outcome.report().summary());
    if (child.severalProcesses()) {
      child.note("Topics after " + broken + " are skipped: the processes are no longer in step.");
      return List.of();
    }
    return rest.subList(1, rest.size());
  }

  private boolean hasTime() {
    return child.left().compareTo(END_MARGIN) > 0;
  }

  /**
   * Returns the row of a topic during which its process crashed, hung or was stopped.
   *
   * @param late whether the time for all topics was up
   */
  static List<Object> brokenRow(String topic, Outcome outcome, boolean late) {
    Map<String, String> facts = outcome.report().facts();
    boolean unfinished =
        late
            && outcome.status() == Outcome.Status.TIMED_OUT
            && facts.getOrDefault(FAILED, "0").equals("0");
    List<Object> row =
        new ArrayList<>(List.of(topic, unfinished ? UNFINISHED : outcome.status().label()));
    for (String count : List.of(PASSED, FAILED, SKIPPED)) {
      boolean begun = topic.equals(facts.get(ContractTopics.TOPIC));
      row.add(begun ? Long.parseLong(facts.getOrDefault(count, "0")) : 0L);
    }
    row.add("");
    return row;
  }

  private void add(List<Object> row) {
    rows.add(row);
    String result = (String) row.get(RESULT);
    if (!List.of(UNFINISHED, PASSED, Outcome.Status.NOT_POSSIBLE.label()).contains(result)) {
      bad.add((String) row.getFirst());
    }
  }

  private Step step(List<String> topics) {
    List<String> words =
        Java.command(
            Child.class.getName(),
            // The tests record the native functions that they call.
            "-Djextract.trace.downcalls=true",
            "-Dtest.downcalls=" + work.resolve(CALLED),
            StepRunner.crashFile(work));
    Path report = work.resolve("topics." + processes + ".json");
    words.addAll(List.of("contract-topics", "--suite", child.suite));
    words.addAll(List.of("--topics", String.join(",", topics)));
    words.addAll(List.of("--size", "" + child.size, "--report", report.toString()));
    if (child.meet != null) {
      words.addAll(List.of("--meet", child.meet.toString()));
    }
    Step.Command process =
        new Step.Command("process", words, Map.of("CLASSPATH", Java.classPath()), report);
    return Step.of("topics", "topics", child.left(), process).withSilence(LONGEST_TEST);
  }

  private long count(String name) {
    int column = COLUMNS.indexOf(name);
    return rows.stream().mapToLong(row -> (long) row.get(column)).sum();
  }

  private String summary() {
    return "%d passed, %d failed, %d skipped"
        .formatted(count(PASSED), count(FAILED), count(SKIPPED));
  }

  private static String named(String what, List<String> topics) {
    return topics.isEmpty() ? "" : "; " + what + ": " + String.join(", ", topics);
  }

  private void finish(List<String> left) throws IOException {
    if (Files.exists(work.resolve(CALLED))) {
      child.fact(
          "functionsCalled",
          String.join(" ", new TreeSet<>(Files.readAllLines(work.resolve(CALLED)))));
    }
    child.fact("processes", "" + processes);
    child.table(
        new Table(
            "tests of %s by topic; a new process after each topic that did not pass"
                .formatted(child.suite),
            COLUMNS,
            rows));
    if (child.quick) {
      child.note("only these topics of the suite, because of --quick");
    }
    List<String> unfinished =
        rows.stream()
            .filter(row -> row.get(RESULT).equals(UNFINISHED))
            .map(row -> (String) row.getFirst())
            .toList();
    child.end(
        count(PASSED),
        bad.isEmpty(),
        summary()
            + named("not passed", bad)
            + named(UNFINISHED, unfinished)
            + named("skipped for lack of time", left));
  }
}
