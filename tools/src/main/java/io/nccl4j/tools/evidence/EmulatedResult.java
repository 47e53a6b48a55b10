package io.nccl4j.tools.evidence;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The numbers of a step on the emulated CUDA, from the reports that it wrote.
 *
 * @param outcome how it ended
 * @param counts how many of its tests passed, failed and were skipped; empty if that is unknown
 * @param skips the number of skipped tests by reason
 * @param comparisons what it compared
 * @param failures what failed
 */
record EmulatedResult(
    Outcome outcome,
    List<Long> counts,
    Map<String, Long> skips,
    List<Comparison> comparisons,
    List<String> failures) {
  private static final Pattern SKIPS = Pattern.compile("(rank \\d+: )?skipped (\\d+): (.*)");

  /** The summary of a suite in which nothing failed and no topic was left out. */
  private static final Pattern COMPLETE =
      Pattern.compile("[1-9]\\d* passed, 0 failed, \\d+ skipped");

  private static final Pattern BITS = Pattern.compile("(\\d+) results compared .*, (\\d+) differ");

  /** A line that {@code PlannerTest} prints. */
  private static final Pattern PLANS =
      Pattern.compile("([^\\[\n]*: \\d+ collectives), (\\d+) lines, (\\d+) different");

  private static final Pattern SUITE =
      Pattern.compile(
          "<testsuite [^>]*tests=\"(\\d+)\" errors=\"(\\d+)\" skipped=\"(\\d+)\""
              + " failures=\"(\\d+)\"");

  private static final Pattern SKIPPED_TEST = Pattern.compile("<skipped message=\"([^\"]*)\"");

  private static final Pattern FAILED_TEST =
      Pattern.compile(
          "<testcase name=\"([^\"]*)\"[^>]*>\\s*<(?:failure|error)[^>]* message=\"([^\"]*)\"");

  /**
   * Results compared with predicted ones.
   *
   * @param title what was compared
   * @param compared how many
   * @param different how many differ
   */
  record Comparison(String title, long compared, long different) {}

  /** Returns the result of a step that ran the contract suite. */
  static EmulatedResult ofContract(Outcome outcome) {
    Report report = outcome.report();
    List<Long> counts =
        report.tables().stream()
            .filter(table -> table.columns().equals(ContractSuite.COLUMNS))
            .findFirst()
            .map(EmulatedResult::sums)
            .orElse(List.of());
    Map<String, Long> skips = new LinkedHashMap<>();
    List<String> failures = new ArrayList<>();
    for (String note : report.notes()) {
      Matcher skip = SKIPS.matcher(note);
      if (!skip.matches()) {
        failures.add(note);
      } else if (skip.group(1) == null) {
        skips.merge(skip.group(3), Long.valueOf(skip.group(2)), Long::sum);
      }
    }
    boolean complete = COMPLETE.matcher(report.summary()).matches();
    return new EmulatedResult(checked(outcome, complete), counts, skips, List.of(), failures);
  }

  /** Returns an outcome that is bad if its reports do not confirm that everything passed. */
  private static Outcome checked(Outcome outcome, boolean confirmed) {
    return confirmed || outcome.status().bad()
        ? outcome
        : new Outcome(
            outcome.step(),
            Outcome.Status.FAILED,
            outcome.report(),
            outcome.seconds(),
            outcome.tails());
  }

  private static List<Long> sums(Table table) {
    return List.of(ContractSuite.PASSED, ContractSuite.FAILED, ContractSuite.SKIPPED).stream()
        .map(table.columns()::indexOf)
        .map(column -> table.rows().stream().mapToLong(row -> (long) row.get(column)).sum())
        .toList();
  }

  /** Returns the result of a step that compared bits. */
  static EmulatedResult ofBits(Outcome outcome) {
    Matcher bits = BITS.matcher(outcome.report().summary());
    List<Comparison> comparisons =
        bits.lookingAt()
            ? List.of(comparison(outcome.step().title(), bits.group(1), bits.group(2)))
            : List.of();
    return new EmulatedResult(
        checked(outcome, comparisons.stream().anyMatch(each -> each.compared() > 0)),
        List.of(),
        Map.of(),
        comparisons,
        outcome.report().notes());
  }

  /**
   * Returns the result of a step that ran tests of the planner with Maven.
   *
   * @param xml the report of its test class
   */
  static EmulatedResult ofPlanner(Outcome outcome, Path xml) throws IOException {
    if (!Files.exists(xml)) {
      return new EmulatedResult(
          checked(outcome, false), List.of(), Map.of(), List.of(), outcome.report().notes());
    }
    String text = Files.readString(xml);
    List<Long> counts = new ArrayList<>();
    Matcher suite = SUITE.matcher(text);
    if (suite.find()) {
      long failed = Long.parseLong(suite.group(2)) + Long.parseLong(suite.group(4));
      long skipped = Long.parseLong(suite.group(3));
      counts = List.of(Long.parseLong(suite.group(1)) - failed - skipped, failed, skipped);
    }
    List<Comparison> comparisons =
        PLANS
            .matcher(text)
            .results()
            .map(found -> comparison(found.group(1), found.group(2), found.group(3)))
            .toList();
    List<String> failures =
        FAILED_TEST
            .matcher(text)
            .results()
            .map(found -> found.group(1) + ": " + found.group(2))
            .toList();
    Map<String, Long> skips = new LinkedHashMap<>();
    SKIPPED_TEST
        .matcher(text)
        .results()
        .forEach(found -> skips.merge(found.group(1), 1L, Long::sum));
    boolean confirmed = !counts.isEmpty() && counts.getFirst() > 0;
    return new EmulatedResult(checked(outcome, confirmed), counts, skips, comparisons, failures);
  }

  private static Comparison comparison(String title, String compared, String different) {
    return new Comparison(title, Long.parseLong(compared), Long.parseLong(different));
  }

  /**
   * Returns the result of a step that ran the evidence.
   *
   * @param json its results
   */
  static EmulatedResult ofEvidence(Outcome outcome, Path json) throws IOException {
    if (!Files.exists(json)) {
      return new EmulatedResult(
          checked(outcome, false), List.of(), Map.of(), List.of(), outcome.report().notes());
    }
    long[] counts = new long[3];
    Map<String, Long> skips = new LinkedHashMap<>();
    List<String> failures = new ArrayList<>();
    for (Run.Recorded recorded : Run.Earlier.read(json).steps()) {
      Outcome step = recorded.outcome();
      String summary = step.report().summary();
      if (step.status().bad()) {
        counts[1]++;
        failures.add(recorded.name() + ": " + step.status().label() + ": " + summary);
      } else if (step.status() == Outcome.Status.NOT_POSSIBLE) {
        counts[2]++;
        skips.merge(recorded.name() + ": " + summary, 1L, Long::sum);
      } else {
        counts[0]++;
      }
    }
    return new EmulatedResult(
        checked(outcome, counts[0] > 0),
        List.of(counts[0], counts[1], counts[2]),
        skips,
        List.of(),
        failures);
  }
}
