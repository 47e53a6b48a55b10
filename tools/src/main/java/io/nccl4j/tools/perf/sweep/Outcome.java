package io.nccl4j.tools.perf.sweep;

import io.nccl4j.tools.perf.report.PerfRun;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/**
 * What came of all choices. Times are of operations out of place.
 *
 * @param collective what was measured
 * @param backend which backend
 * @param rounds how often each choice was measured
 * @param trials one for each choice, the automatic one first
 */
record Outcome(String collective, String backend, int rounds, List<SweepResult> results) {
  /** From this release on NCCL refuses a choice that it does not have. */
  private static final int REFUSES_SINCE = 24;

  private static final Pattern RELEASE = Pattern.compile("\\bnccl ((\\d+)\\.(\\d+)[.\\d]*)");

  /** Returns what came of the automatic choice. */
  SweepResult automatic() {
    return results.getFirst();
  }

  /** Returns what came of the other choices. */
  List<SweepResult> forced() {
    return results.subList(1, results.size());
  }

  /** Returns what was measured of the automatic choice, or else of any. */
  Optional<PerfRun> first() {
    return results.stream().flatMap(trial -> trial.rounds().stream()).findFirst();
  }

  /** Returns all sizes, the smallest first. */
  List<Long> sizes() {
    return List.copyOf(
        results.stream()
            .flatMap(trial -> trial.rounds().stream())
            .flatMap(measured -> measured.rows().stream())
            .map(PerfRun.Row::bytes)
            .collect(Collectors.toCollection(TreeSet::new)));
  }

  /** Returns the quickest of the choices with right data, but for the automatic one. */
  Optional<SweepResult> best(long bytes) {
    return forced().stream()
        .filter(trial -> !Double.isNaN(trial.micros(bytes)))
        .min(Comparator.comparingDouble(trial -> trial.micros(bytes)));
  }

  /**
   * Returns how much longer the automatic choice takes than the best one, as a part of it, or NaN.
   */
  double cost(long bytes) {
    return best(bytes)
        .map(best -> automatic().micros(bytes) / best.micros(bytes) - 1)
        .orElse(Double.NaN);
  }

  /** Returns whether anything at all was measured. */
  boolean measuredAnything() {
    return !sizes().isEmpty();
  }

  /** Returns whether any data was wrong. */
  boolean wrong() {
    return results.stream().anyMatch(trial -> trial.state() == SweepResult.State.WRONG);
  }

  /** Returns whether it ran on the stand-in for NCCL, whose times mean nothing. */
  boolean standIn() {
    return first().map(PerfRun::standIn).orElse(false);
  }

  /** Returns what limits what the columns say, or an empty text. */
  String caution() {
    if (!backend.equals("nccl")) {
      return "";
    }
    String versions =
        first().map(measured -> measured.facts().getOrDefault("versions", "")).orElse("");
    Matcher release = RELEASE.matcher(versions);
    boolean found = release.find();
    boolean refuses =
        found
            && (Integer.parseInt(release.group(2)) > 2
                || Integer.parseInt(release.group(3)) >= REFUSES_SINCE);
    return refuses
        ? ""
        : "NCCL %s may take another choice than it was asked for, and does not say so: from 2.%d on it refuses. A column is what was asked for."
            .formatted(found ? release.group(1) : "of an unknown release", REFUSES_SINCE);
  }
}
