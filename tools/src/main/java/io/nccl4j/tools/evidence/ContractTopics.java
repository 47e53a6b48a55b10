package io.nccl4j.tools.evidence;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.discovery.DiscoverySelectors;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.Launcher;
import org.junit.platform.launcher.LauncherDiscoveryRequest;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/**
 * Runs topics of nccl4j's contract suite, one after the other. Stops after the first topic that
 * fails, since a failure may leave the GPU or NCCL unusable for the process. The report is written
 * before each test, so that after a crash or a hang it has the earlier results and the test's name.
 */
final class ContractTopics implements TestExecutionListener {
  /** The title of the table of completed topics. */
  static final String COMPLETED = "completed topics";

  /** The name of a fact: the topic that is running. */
  static final String TOPIC = "topic";

  private static final int MAX_NOTES = 40;

  private final Child child;
  private final Map<String, Class<?>> nested;
  private final List<List<Object>> completed = new ArrayList<>();
  private final List<String> failures = new ArrayList<>();
  private final Map<String, Integer> skips = new LinkedHashMap<>();
  private String running = "no test";
  private long passed;
  private long failed;
  private long skipped;

  private ContractTopics(Child child, Map<String, Class<?>> nested) {
    this.child = child;
    this.nested = nested;
  }

  static void run(Child child) throws IOException, ClassNotFoundException {
    System.setProperty("test.ranks", "" + child.size);
    if (child.severalProcesses()) {
      System.setProperty("test.process.rank", "" + child.launch.rank());
      System.setProperty("test.process.folder", child.meet.toString());
      // Any number that all processes of the step share.
      System.setProperty("test.seed", "" + Integer.toUnsignedLong(child.meet.hashCode()));
    }
    Launcher launcher = LauncherFactory.create();
    ContractTopics topics = new ContractTopics(child, ContractSuite.topics(child.suite));
    for (String topic : child.topics) {
      if (topics.failures.isEmpty()) {
        topics.run(launcher, topic);
      }
    }
    topics.finish();
  }

  private void run(Launcher launcher, String topic) throws IOException, ClassNotFoundException {
    passed = 0;
    failed = 0;
    skipped = 0;
    child.fact(TOPIC, topic);
    LauncherDiscoveryRequest request =
        LauncherDiscoveryRequestBuilder.request()
            .selectors(
                DiscoverySelectors.selectNestedClass(
                    List.of(Class.forName(child.suite)), nested.get(topic)))
            .build();
    long start = System.nanoTime();
    launcher.execute(request, this);
    double seconds = Table.rounded((System.nanoTime() - start) / 1e9, 1);
    String result =
        failed > 0
            ? Outcome.Status.FAILED.label()
            // A topic without a test that ran has not passed.
            : passed > 0 ? Outcome.Status.PASSED.label() : Outcome.Status.NOT_POSSIBLE.label();
    completed.add(List.of(topic, result, passed, failed, skipped, seconds));
    child.table(new Table(COMPLETED, ContractSuite.COLUMNS, List.copyOf(completed)));
    child.saveUnfinished("stopped after " + topic);
  }

  @Override
  public void executionStarted(TestIdentifier test) {
    if (test.isTest()) {
      running = name(test);
      save();
    }
  }

  @Override
  public void executionSkipped(TestIdentifier test, String reason) {
    skip(reason);
  }

  @Override
  public void executionFinished(TestIdentifier test, TestExecutionResult result) {
    Throwable cause = result.getThrowable().orElse(null);
    switch (result.getStatus()) {
      case ABORTED -> skip(cause == null ? "no reason given" : cause.getMessage());
      case FAILED -> {
        failed++;
        failures.add(name(test) + ": " + cause);
        System.out.println("FAILED " + name(test));
        if (cause != null) {
          cause.printStackTrace();
        }
      }
      case SUCCESSFUL -> {
        if (test.isTest()) {
          passed++;
        }
      }
    }
  }

  private void skip(String reason) {
    skipped++;
    skips.merge(reason.replace("Assumption failed: ", ""), 1, Integer::sum);
  }

  private static String name(TestIdentifier test) {
    String method =
        test.getSource().orElse(null) instanceof MethodSource source
            ? source.getMethodName()
            : test.getDisplayName();
    boolean invocation = test.getUniqueId().contains("test-template-invocation");
    return method + (invocation ? " [" + test.getDisplayName() + "]" : "");
  }

  private void save() {
    child.fact(ContractSuite.PASSED, "" + passed);
    child.fact(ContractSuite.FAILED, "" + failed);
    child.fact(ContractSuite.SKIPPED, "" + skipped);
    try {
      child.saveUnfinished("stopped in " + running);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private void finish() {
    failures.stream().limit(MAX_NOTES).forEach(failure -> child.note("FAILED " + failure));
    skips.forEach((reason, count) -> child.note("skipped " + count + ": " + reason));
    child.end(completed.size(), failures.isEmpty(), completed.size() + " topics completed");
  }
}
