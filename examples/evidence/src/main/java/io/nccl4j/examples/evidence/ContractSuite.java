package io.nccl4j.examples.evidence;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.discovery.DiscoverySelectors;
import org.junit.platform.engine.support.descriptor.ClassSource;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.Launcher;
import org.junit.platform.launcher.LauncherDiscoveryRequest;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/**
 * The library's own contract suite, as its tests run it. After each test the report is written, so
 * that a crash or a hang leaves what went before and what it was in.
 */
final class ContractSuite implements TestExecutionListener {
  private static final int MOST_NOTES = 40;

  private final Child child;
  private final Map<String, int[]> topics = new LinkedHashMap<>();
  private final List<String> failures = new ArrayList<>();
  private final Map<String, Integer> skips = new LinkedHashMap<>();
  private String running = "nothing yet";
  private int passed;
  private int skipped;

  private ContractSuite(Child child) {
    this.child = child;
  }

  static void run(Child child) {
    System.setProperty("test.ranks", "" + child.size);
    LauncherDiscoveryRequest request =
        LauncherDiscoveryRequestBuilder.request()
            .selectors(DiscoverySelectors.selectClass(child.suite))
            .build();
    Launcher launcher = LauncherFactory.create();
    ContractSuite suite = new ContractSuite(child);
    launcher.execute(request, suite);
    suite.finish();
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
    skip(test, reason);
  }

  @Override
  public void executionFinished(TestIdentifier test, TestExecutionResult result) {
    Throwable cause = result.getThrowable().orElse(null);
    switch (result.getStatus()) {
      case ABORTED -> skip(test, cause == null ? "no reason given" : cause.getMessage());
      case FAILED -> {
        counts(test)[1]++;
        failures.add(name(test) + ": " + cause);
        System.out.println("FAILED " + name(test));
        if (cause != null) {
          cause.printStackTrace();
        }
      }
      case SUCCESSFUL -> {
        if (test.isTest()) {
          passed++;
          counts(test)[0]++;
        }
      }
    }
  }

  private void skip(TestIdentifier test, String reason) {
    skipped++;
    counts(test)[2]++;
    skips.merge(reason.replace("Assumption failed: ", ""), 1, Integer::sum);
  }

  /** Returns passed, failed and skipped of a test's topic. */
  private int[] counts(TestIdentifier test) {
    return topics.computeIfAbsent(topic(test), topic -> new int[3]);
  }

  /** A topic is a nested class of the suite. */
  private static String topic(TestIdentifier test) {
    String type =
        switch (test.getSource().orElse(null)) {
          case MethodSource method -> method.getClassName();
          case ClassSource source -> source.getClassName();
          case null, default -> test.getDisplayName();
        };
    return type.substring(Math.max(type.lastIndexOf('$'), type.lastIndexOf('.')) + 1);
  }

  private static String name(TestIdentifier test) {
    String method =
        test.getSource().orElse(null) instanceof MethodSource source
            ? source.getMethodName()
            : test.getDisplayName();
    boolean invocation = test.getUniqueId().contains("test-template-invocation");
    return topic(test) + "." + method + (invocation ? " [" + test.getDisplayName() + "]" : "");
  }

  private void save() {
    try {
      child.saveUnfinished(counted() + "; ended while in " + running);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private String counted() {
    return "%d passed, %d failed, %d skipped".formatted(passed, failures.size(), skipped);
  }

  private void finish() {
    List<List<Object>> rows = new ArrayList<>();
    topics.forEach((topic, counts) -> rows.add(List.of(topic, counts[0], counts[1], counts[2])));
    child.table(
        new Table(
            "tests of " + child.suite.substring(child.suite.lastIndexOf('.') + 1) + " by topic",
            List.of("topic", "passed", "failed", "skipped"),
            rows));
    failures.stream().limit(MOST_NOTES).forEach(failure -> child.note("FAILED " + failure));
    skips.forEach((reason, count) -> child.note("skipped " + count + ": " + reason));
    child.end(
        failures.isEmpty() && passed > 0 ? Report.Verdict.PASSED : Report.Verdict.FAILED,
        counted());
  }
}
