package io.nccl4j.reference;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/** One job of a {@link FaultCampaign}: starts its ranks, injects a fault, and checks the output. */
final class FaultRound {
  /** How much longer than the timeout ranks may take to detect the fault on a busy machine. */
  private static final long DETECTION_MILLIS = 20_000;

  private static final long STARTING_MILLIS = 90_000;
  private static final long ENDING_MILLIS = 60_000;

  /** A line that a rank printed. */
  record Line(long micros, FaultCampaignRank.Event event, String text) {}

  /**
   * The failure of a survivor.
   *
   * @param millis the time since the fault
   * @param step the call that failed
   * @param type the simple name of the exception's class
   * @param text the exception
   * @param lost the ranks that the exception names, in brackets; "" if it is of the rendezvous
   * @param named whether the text names ranks
   */
  record Failure(
      double millis, String step, String type, String lost, String text, boolean named) {}

  /**
   * The outcome of a round.
   *
   * @param failures the failures of the survivors
   * @param problems the violations of expectations
   * @param resumed the type of the exception of a rank that was stopped and continued, or null
   * @param processes the ids of the processes
   */
  record Outcome(
      FaultCampaign.JobPlan plan,
      List<Failure> failures,
      List<String> problems,
      String resumed,
      List<Long> processes) {}

  private final FaultCampaign.JobPlan plan;
  private final Path folder;
  private final List<Process> processes = new ArrayList<>();
  private final List<Failure> failures = new ArrayList<>();
  private final List<String> problems = new ArrayList<>();
  private String resumed;

  private FaultRound(FaultCampaign.JobPlan plan, Path folder) {
    this.plan = plan;
    this.folder = folder;
  }

  static Outcome run(FaultCampaign.JobPlan plan) throws IOException {
    Path folder = Files.createTempDirectory("nccl4j-faults-");
    try {
      return new FaultRound(plan, folder).run();
    } finally {
      try (Stream<Path> files = Files.walk(folder)) {
        files.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
      }
    }
  }

  private Outcome run() throws IOException {
    try {
      for (int rank = 0; rank < plan.ranks(); rank++) {
        processes.add(start(rank));
      }
      if (await(STARTING_MILLIS, () -> all(FaultCampaignRank.Event.READY))) {
        sleep(plan.delayMillis());
        injectFault();
      } else {
        for (int rank = 0; rank < plan.ranks(); rank++) {
          problem("not all were ready in time; rank " + rank + ": " + failure(rank, 0).text());
        }
      }
    } finally {
      processes.forEach(Process::destroyForcibly);
      processes.forEach(process -> await(ENDING_MILLIS, () -> !process.isAlive()));
    }
    List<Long> numbers = processes.stream().map(Process::pid).toList();
    return new Outcome(plan, failures, problems, resumed, numbers);
  }

  private Process start(int rank) throws IOException {
    return new ProcessBuilder(
            Path.of(System.getProperty("java.home"), "bin", "java").toString(),
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-Xmx256m",
            "-Dlog4j2.simplelogLevel=WARN",
            "-cp",
            RankProcesses.classPath(),
            FaultCampaignRank.class.getName(),
            Integer.toString(rank),
            Integer.toString(plan.ranks()),
            folder.toString(),
            plan.links().name(),
            plan.phase().name(),
            Long.toString(plan.seed()),
            Long.toString(plan.timeoutMillis()))
        .redirectOutput(output(rank).toFile())
        .redirectError(errors(rank).toFile())
        .start();
  }

  private Path output(int rank) {
    return folder.resolve("output-" + rank);
  }

  private Path errors(int rank) {
    return folder.resolve("errors-" + rank);
  }

  private void injectFault() throws IOException {
    Process victim = processes.get(plan.victim());
    long at = ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
    if (plan.fault() == FaultCampaign.FaultKind.KILL) {
      victim.destroyForcibly();
    } else {
      signal(victim, "STOP");
    }
    for (int rank = 0; rank < plan.ranks(); rank++) {
      if (rank != plan.victim()) {
        observe(rank, at);
      }
    }
    if (plan.fault() == FaultCampaign.FaultKind.STOP) {
      signal(victim, "CONT");
      awaitEnd(plan.victim());
      resumed = failure(plan.victim(), at).type();
    }
  }

  /** Waits until a survivor has detected the fault and ended, and checks its output. */
  private void observe(int rank, long at) throws IOException {
    long limit = plan.timeoutMillis() + DETECTION_MILLIS;
    if (!await(limit, () -> find(rank, FaultCampaignRank.Event.FAILED) != null)) {
      problem("rank " + rank + " detected nothing for " + limit + " ms");
      return;
    }
    awaitEnd(rank);
    Failure failure = failure(rank, at);
    failures.add(failure);
    if (failure.millis() < 0) {
      problem("rank " + rank + " failed before the fault: " + failure.text());
    }
    if (!failure.type().matches("Nccl.*Exception|RendezvousException")) {
      problem("rank " + rank + " had another failure: " + Files.readString(errors(rank)));
    }
    if (!namesVictim(failure)) {
      problem(
          "the failure of rank %d names ranks %s: %s"
              .formatted(rank, failure.lost(), failure.text()));
    }
    if (failure.lost().equals("[]") && failure.named()) {
      problem("the failure of rank " + rank + " names ranks only in its text: " + failure.text());
    }
    Line recovered = find(rank, FaultCampaignRank.Event.RECOVERED);
    if (recovered != null && !recovered.text().equals(Integer.toString(plan.ranks() - 1))) {
      problem("rank " + rank + " continued with " + recovered.text() + " ranks");
    }
    if (recovered == null) {
      Line why = find(rank, FaultCampaignRank.Event.NOT_RECOVERED);
      problem("rank " + rank + " did not continue: " + (why == null ? "it ended" : why.text()));
    }
  }

  /** Returns whether a failure names the victim, or nobody. */
  private boolean namesVictim(Failure failure) {
    List<String> named = List.of(failure.lost().replaceAll("[\\[\\]]", "").split(", "));
    String victim = Integer.toString(plan.victim());
    if (named.equals(List.of("")) || named.equals(List.of(victim))) {
      return true;
    }
    // A shrink without the victim waits for ranks that have failed because of it.
    if (failure.text().matches("shrink: .* did not call shrink .*")) {
      return named.stream().allMatch(each -> failedBecauseOfVictim(Integer.parseInt(each)));
    }
    // A rank that waits for the lost one elsewhere, before it joins, cannot be told from it.
    return failure.text().matches("connect: .* did not join \\(.*") && named.contains(victim);
  }

  private boolean failedBecauseOfVictim(int rank) {
    await(plan.timeoutMillis(), () -> find(rank, FaultCampaignRank.Event.FAILED) != null);
    return failure(rank, 0).lost().equals("[" + plan.victim() + "]");
  }

  private void awaitEnd(int rank) throws IOException {
    if (!await(ENDING_MILLIS, () -> !processes.get(rank).isAlive())) {
      problem("rank " + rank + " did not end");
    }
    Line wrong = find(rank, FaultCampaignRank.Event.WRONG);
    if (wrong != null) {
      problem("rank " + rank + " has a wrong value: " + wrong.text());
    }
    Line left = find(rank, FaultCampaignRank.Event.LEFT);
    if (left == null || !left.text().equals("[]")) {
      String text = left == null ? Files.readString(errors(rank)) : left.text();
      problem("rank " + rank + " left behind: " + text);
    }
  }

  private Failure failure(int rank, long at) {
    Line line = find(rank, FaultCampaignRank.Event.FAILED);
    if (line == null) {
      return new Failure(0, "", "nothing", "", "", false);
    }
    String[] parts = line.text().split("\\|", 4);
    // The text may name several ranks, numbered as in the communicator that failed, and this rank.
    Pattern name = Pattern.compile("(?<!\\[)\\branks? ([0-9]+, )*[0-9]+\\b");
    return new Failure(
        (line.micros() - at) / 1000.0,
        parts[0],
        parts[1],
        parts[2],
        parts[3],
        name.matcher(parts[3]).find());
  }

  private void problem(String text) {
    problems.add(plan + ": " + text.replace('\n', ' '));
  }

  private boolean all(FaultCampaignRank.Event event) {
    for (int rank = 0; rank < plan.ranks(); rank++) {
      if (find(rank, event) == null) {
        return false;
      }
    }
    return true;
  }

  /** Returns the first line of a rank with an event, or null. */
  private Line find(int rank, FaultCampaignRank.Event event) {
    try {
      for (String line : Files.readString(output(rank)).split("\n", -1)) {
        String[] parts = line.split(" ", 3);
        if (parts.length == 3 && parts[1].equals(event.name())) {
          return new Line(Long.parseLong(parts[0]), event, parts[2]);
        }
      }
      return null;
    } catch (IOException e) {
      throw new AssertionError(e);
    }
  }

  private static void signal(Process process, String name) throws IOException {
    Process kill = new ProcessBuilder("kill", "-" + name, Long.toString(process.pid())).start();
    if (!await(ENDING_MILLIS, () -> !kill.isAlive()) || kill.exitValue() != 0) {
      throw new AssertionError("kill -" + name + " failed");
    }
  }

  /** Waits until a condition holds or the time is up; returns whether it holds. */
  private static boolean await(long millis, BooleanSupplier condition) {
    long start = System.nanoTime();
    while (!condition.getAsBoolean()) {
      if (System.nanoTime() - start > TimeUnit.MILLISECONDS.toNanos(millis)) {
        return false;
      }
      sleep(5);
    }
    return true;
  }

  private static void sleep(long millis) {
    try {
      TimeUnit.MILLISECONDS.sleep(millis);
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }
}
