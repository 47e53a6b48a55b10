package io.nccl4j.examples.evidence;

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
 * One topic of the library's own contract suite, as its tests run it. After each test the report is
 * written, so that a crash or a hang leaves what went before and what it was in.
 */
final class ContractTopic implements TestExecutionListener {
  private static final int MOST_NOTES = 40;

  private final Child child;
  private final List<String> failures = new ArrayList<>();
  private final Map<String, Integer> skips = new LinkedHashMap<>();
  private String running = "nothing yet";
  private int passed;
  private int skipped;

  private ContractTopic(Child child) {
    this.child = child;
  }

  static void run(Child child) {
    System.setProperty("test.ranks", "" + child.size);
    if (child.meet != null) {
      System.setProperty("test.process.rank", "" + child.rank);
      System.setProperty("test.process.folder", child.meet.toString());
      // Any number will do that all processes of the step have in common.
      System.setProperty("test.seed", "" + Integer.toUnsignedLong(child.meet.hashCode()));
    }
    LauncherDiscoveryRequest request =
        LauncherDiscoveryRequestBuilder.request()
            .selectors(
                DiscoverySelectors.selectNestedClass(
                    List.of(child.suite), ContractSuite.NESTED_IN + "$" + child.topic))
            .build();
    Launcher launcher = LauncherFactory.create();
    ContractTopic suite = new ContractTopic(child);
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
    skip(reason);
  }

  @Override
  public void executionFinished(TestIdentifier test, TestExecutionResult result) {
    Throwable cause = result.getThrowable().orElse(null);
    switch (result.getStatus()) {
      case ABORTED -> skip(cause == null ? "no reason given" : cause.getMessage());
      case FAILED -> {
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
    try {
      facts();
      child.saveUnfinished(counted() + "; ended while in " + running);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private String counted() {
    return "%d passed, %d failed, %d skipped".formatted(passed, failures.size(), skipped);
  }

  private void finish() {
    facts();
    failures.stream().limit(MOST_NOTES).forEach(failure -> child.note("FAILED " + failure));
    skips.forEach((reason, count) -> child.note("skipped " + count + ": " + reason));
    child.end(verdict(), counted());
  }

  /** A topic of which nothing was run has not passed. */
  private Report.Verdict verdict() {
    if (!failures.isEmpty()) {
      return Report.Verdict.FAILED;
    }
    return passed > 0 ? Report.Verdict.PASSED : Report.Verdict.NOT_POSSIBLE;
  }

  private void facts() {
    child.fact(ContractSuite.PASSED, "" + passed);
    child.fact(ContractSuite.FAILED, "" + failures.size());
    child.fact(ContractSuite.SKIPPED, "" + skipped);
  }
}
