package io.nccl4j.reference;

import io.nccl4j.fixtures.Seed;
import io.nccl4j.internal.reference.transport.SharedMemoryFiles;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.SplittableRandom;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.Function;

/**
 * Many jobs of three to five processes each. In each job one process is killed or stopped at a
 * random time, while the job repeats one phase of its life, over shared memory or TCP.
 */
final class FaultCampaign {
  private static final int LEAST_RANKS = 3;
  private static final int MOST_RANKS = 5;

  private static final int MAX_DELAY_MILLIS = 500;

  /** The phase that the ranks repeat. */
  enum Phase {
    COLLECTIVE,
    SPLIT,
    SHRINK,
    CLOSE,
    CONNECT,
    RENDEZVOUS
  }

  /** The fault of a rank. */
  enum FaultKind {
    KILL,
    STOP
  }

  /** The parameters of one job. */
  record JobPlan(
      int number,
      int ranks,
      FaultKind fault,
      Transport links,
      Phase phase,
      int victim,
      long delayMillis,
      long timeoutMillis,
      long seed) {
    @Override
    public String toString() {
      return "job %d, %s of rank %d of %d after %d ms, %s, %s"
          .formatted(number, fault, victim, ranks, delayMillis, transport(), phase);
    }

    String transport() {
      return links == Transport.AUTO ? "shared memory" : "TCP";
    }
  }

  private final List<JobPlan> plans = new ArrayList<>();
  private final List<FaultRound.Outcome> outcomes = new ArrayList<>();
  private int filesAfterwards;

  /** Plans jobs with the seed of this run. */
  FaultCampaign(int kills, int stops, long timeoutMillis) {
    SplittableRandom random = Seed.random("faults");
    for (int number = 0; number < kills + stops; number++) {
      FaultKind fault = number < kills ? FaultKind.KILL : FaultKind.STOP;
      int ofKind = fault == FaultKind.KILL ? number : number - kills;
      Phase[] phases = Phase.values();
      // The first kill is over shared memory, the first stop over TCP.
      Transport[] links =
          fault == FaultKind.KILL
              ? new Transport[] {Transport.AUTO, Transport.TCP}
              : new Transport[] {Transport.TCP, Transport.AUTO};
      int ranks = random.nextInt(LEAST_RANKS, MOST_RANKS + 1);
      plans.add(
          new JobPlan(
              number,
              ranks,
              fault,
              // Twelve jobs of a kind cover each phase over each transport.
              links[(ofKind + ofKind / phases.length) % links.length],
              phases[ofKind % phases.length],
              random.nextInt(ranks),
              random.nextInt(MAX_DELAY_MILLIS),
              timeoutMillis,
              random.nextLong()));
    }
  }

  /** Runs the jobs, at most the given number at a time. */
  void run(int parallel) throws InterruptedException {
    try (ExecutorService jobs = Executors.newFixedThreadPool(parallel)) {
      List<Future<FaultRound.Outcome>> running =
          plans.stream().map(plan -> jobs.submit(() -> FaultRound.run(plan))).toList();
      for (Future<FaultRound.Outcome> job : running) {
        outcomes.add(job.get());
      }
    } catch (ExecutionException e) {
      throw new AssertionError(e.getCause());
    }
    filesAfterwards = sharedMemoryFiles().size();
    // As the next process that shares memory does.
    SharedMemoryFiles.sweep();
  }

  /** Returns the files of shared memory that processes of the jobs have left. */
  private Set<Path> sharedMemoryFiles() {
    try {
      return SharedNames.of(
          outcomes.stream().flatMap(outcome -> outcome.processes().stream()).toList());
    } catch (IOException e) {
      throw new AssertionError(e);
    }
  }

  /** Returns the violations of expectations. */
  List<String> problems() {
    List<String> problems = new ArrayList<>();
    outcomes.forEach(outcome -> problems.addAll(outcome.problems()));
    sharedMemoryFiles().forEach(name -> problems.add("left after the next start: " + name));
    return problems;
  }

  /** Returns the results as lines of text. */
  String report() {
    StringBuilder text = new StringBuilder();
    line(
        text,
        "Fault campaign: %d jobs of %d to %d processes%s",
        outcomes.size(),
        LEAST_RANKS,
        MOST_RANKS,
        Seed.hint());
    line(text, "");
    line(
        text,
        "%-6s%-15s%-12s%6s%8s%7s%11s%9s",
        "fault",
        "transport",
        "phase",
        "jobs",
        "errors",
        "named",
        "median ms",
        "max ms");
    for (FaultKind fault : FaultKind.values()) {
      rows(text, fault, JobPlan::transport, "", plan -> "all");
      rows(text, fault, plan -> "", "both", plan -> plan.phase().toString());
    }
    line(text, "");
    counts(text, "Errors", failure -> failure.type() + " during " + failure.step());
    counts(text, "Texts, numbers replaced", failure -> general(failure.text()));
    counts(
        text,
        "Texts that do not name the rank",
        failure -> failure.named() ? null : failure.step() + ": " + general(failure.text()));
    Map<String, Integer> resumed = new TreeMap<>();
    outcomes.stream()
        .map(FaultRound.Outcome::resumed)
        .filter(type -> type != null)
        .forEach(type -> resumed.merge(type, 1, Integer::sum));
    line(text, "Errors of stopped ranks after they continued: %s", resumed);
    line(
        text,
        "Files of shared memory before and after the next start: %d, %d",
        filesAfterwards,
        sharedMemoryFiles().size());
    List<String> problems = problems();
    line(text, "Wrong values: %d", count(problems, "wrong value"));
    line(
        text,
        "Ranks that left threads, descriptors or mappings: %d",
        count(problems, "left behind"));
    line(text, "Ranks that detected nothing: %d", count(problems, "detected nothing"));
    line(text, "Ranks that did not continue: %d", count(problems, "did not continue"));
    line(text, "Ranks that continued without another: %d", count(problems, "continued with"));
    line(text, "Failures that name other ranks: %d", count(problems, "names ranks"));
    line(text, "Problems in all: %d", problems.size());
    problems.forEach(problem -> line(text, "  %s", problem));
    return text.toString();
  }

  private static void line(StringBuilder text, String format, Object... values) {
    text.append(String.format(Locale.ROOT, format, values)).append('\n');
  }

  private static long count(List<String> problems, String kind) {
    return problems.stream().filter(problem -> problem.contains(kind)).count();
  }

  /** Appends a row for each group of the jobs with a fault. */
  private void rows(
      StringBuilder text,
      FaultKind fault,
      Function<JobPlan, String> transport,
      String transportOfAll,
      Function<JobPlan, String> phase) {
    Map<String, List<FaultRound.Outcome>> groups = new TreeMap<>();
    for (FaultRound.Outcome outcome : outcomes) {
      if (outcome.plan().fault() == fault) {
        String key =
            "%-15s%-12s"
                .formatted(
                    transport.apply(outcome.plan()) + transportOfAll, phase.apply(outcome.plan()));
        groups.computeIfAbsent(key, k -> new ArrayList<>()).add(outcome);
      }
    }
    groups.forEach((key, group) -> row(text, fault, key, group));
  }

  private static void row(
      StringBuilder text, FaultKind fault, String key, List<FaultRound.Outcome> group) {
    List<FaultRound.Failure> failures =
        group.stream().map(FaultRound.Outcome::failures).flatMap(Collection::stream).toList();
    double[] times = failures.stream().mapToDouble(FaultRound.Failure::millis).sorted().toArray();
    line(
        text,
        "%-6s%s%6d%8d%7d%11.1f%9.1f",
        fault,
        key,
        group.size(),
        failures.size(),
        failures.stream().filter(FaultRound.Failure::named).count(),
        times.length == 0 ? Double.NaN : times[(times.length - 1) / 2],
        times.length == 0 ? Double.NaN : times[times.length - 1]);
  }

  /** Appends the number of failures of each kind; failures of kind null are not counted. */
  private void counts(StringBuilder text, String title, Function<FaultRound.Failure, String> kind) {
    Map<String, Integer> counts = new TreeMap<>();
    for (FaultRound.Outcome outcome : outcomes) {
      for (FaultRound.Failure failure : outcome.failures()) {
        String key = kind.apply(failure);
        if (key != null) {
          counts.merge(key, 1, Integer::sum);
        }
      }
    }
    line(text, "%s:", title);
    counts.forEach((key, times) -> line(text, "%6d  %s", times, key));
    line(text, "");
  }

  /** Replaces the parts that differ between jobs. */
  private static String general(String text) {
    return text.replaceAll("/[^ ,:]*nccl4j-[^ ,:]*", "PATH")
        .replaceAll("\\b[0-9a-f]{16,}\\b", "HEX")
        .replaceAll("[0-9]+(\\.[0-9]+)*", "N");
  }
}
