package io.nccl4j.benchmarks;

import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.openjdk.jmh.profile.GCProfiler;
import org.openjdk.jmh.results.RunResult;
import org.openjdk.jmh.runner.Runner;
import org.openjdk.jmh.runner.RunnerException;
import org.openjdk.jmh.runner.options.CommandLineOptionException;
import org.openjdk.jmh.runner.options.CommandLineOptions;
import org.openjdk.jmh.runner.options.Options;
import org.openjdk.jmh.runner.options.OptionsBuilder;
import org.openjdk.jmh.runner.options.TimeValue;
import org.openjdk.jmh.runner.options.VerboseMode;

/**
 * Measures all ways of calling in one run and compares them.
 *
 * <p>Every benchmark runs once in each round, in a Java process of its own, so that what disturbs
 * the machine for a while disturbs all of them. A round's value is the median of its iterations,
 * the result the median of the rounds.
 */
public final class Calls {
  private static final int CALLS = FirstRank.GROUP;

  /** One way of calling: its benchmark and what it is called in the table. */
  private record Way(String benchmark, String label) {}

  private static final List<Way> WAYS =
      List.of(
          new Way("CCalls.loop", "C, through the PLT"),
          new Way("CCalls.jni", "plain JNI"),
          new Way("GeneratedCalls.allReduce", "generated binding, no checks"),
          new Way("GeneratedCalls.allReduceWithLongs", "linked with longs, no checks"),
          new Way("ContractCalls.allReduce", "nccl4j `allReduce`, all checks"),
          new Way("ContractCalls.allReduceInPlace", "nccl4j `allReduce` in place, all checks"),
          new Way("JavaCppCalls.allReduce", "JavaCPP `ncclAllReduce`"),
          new Way("ContractCalls.calls64", "nccl4j, 64 calls"),
          new Way("ContractCalls.group64", "nccl4j, a group of 64 calls"),
          new Way("ContractCalls.rank", "nccl4j `rank()`"),
          new Way("JavaCppCalls.rank", "JavaCPP `ncclCommUserRank`, pointer used again"),
          new Way("JavaCppCalls.rankIntoNewPointer", "JavaCPP `ncclCommUserRank`, new pointer"));

  /** The rounds of one benchmark. */
  private record Rounds(List<Double> nanos, List<Double> bytes) {
    double median() {
      return Page.median(nanos.stream().mapToDouble(Double::doubleValue).toArray());
    }

    double least() {
      return nanos.stream().mapToDouble(Double::doubleValue).min().orElseThrow();
    }

    double most() {
      return nanos.stream().mapToDouble(Double::doubleValue).max().orElseThrow();
    }

    double allocated() {
      return Page.median(bytes.stream().mapToDouble(Double::doubleValue).toArray());
    }
  }

  private final Map<String, Rounds> results = new LinkedHashMap<>();

  private Calls() {}

  /**
   * Runs the benchmarks.
   *
   * @param args {@code --rounds N}, {@code --write PAGE}, then options of JMH
   * @throws RunnerException if a benchmark fails
   * @throws CommandLineOptionException if JMH does not know an option
   * @throws IOException if the page cannot be written
   */
  public static void main(String[] args)
      throws RunnerException, CommandLineOptionException, IOException {
    List<String> options = new ArrayList<>(List.of(args));
    int rounds = Integer.parseInt(take(options, "--rounds", "5"));
    String page = take(options, "--write", "");
    Options jmh = options(new CommandLineOptions(options.toArray(String[]::new)));
    Calls calls = new Calls();
    for (int round = 1; round <= rounds; round++) {
      System.err.printf("round %d of %d%n", round, rounds);
      calls.add(new Runner(jmh).run());
    }
    String report = calls.report(rounds);
    System.out.print(report);
    if (!page.isEmpty()) {
      Page.replace(Path.of(page), "calls", report);
    }
  }

  /** Takes an option and its value out of a list and returns the value. */
  static String take(List<String> options, String name, String otherwise) {
    int at = options.indexOf(name);
    if (at < 0 || at + 1 == options.size()) {
      return otherwise;
    }
    options.remove(at);
    return options.remove(at);
  }

  private static Options options(CommandLineOptions given) {
    return new OptionsBuilder()
        .parent(given)
        .include("\\.(CCalls|GeneratedCalls|ContractCalls|JavaCppCalls)\\.")
        .addProfiler(GCProfiler.class)
        .forks(1)
        .warmupIterations(given.getWarmupIterations().orElse(10))
        .warmupTime(given.getWarmupTime().orElse(TimeValue.milliseconds(150)))
        .measurementIterations(given.getMeasurementIterations().orElse(15))
        .measurementTime(given.getMeasurementTime().orElse(TimeValue.milliseconds(100)))
        .verbosity(VerboseMode.SILENT)
        .shouldFailOnError(true)
        .build();
  }

  private void add(Iterable<RunResult> round) {
    for (RunResult result : round) {
      String name = result.getParams().getBenchmark();
      name = name.substring(name.lastIndexOf('.', name.lastIndexOf('.') - 1) + 1);
      Rounds rounds =
          results.computeIfAbsent(name, n -> new Rounds(new ArrayList<>(), new ArrayList<>()));
      rounds.nanos().add(result.getPrimaryResult().getStatistics().getPercentile(50));
      rounds.bytes().add(result.getSecondaryResults().get("gc.alloc.rate.norm").getScore());
    }
  }

  private String report(int rounds) throws IOException {
    Rounds contract = results.get("ContractCalls.allReduce");
    StringBuilder text = new StringBuilder(Page.machine());
    text.append(
        "Median of %d rounds, each in Java processes of its own; in brackets the least and the most of a round.%n%n"
            .formatted(rounds));
    text.append("| way | ns | heap bytes | nccl4j's `allReduce` takes so many times this |\n");
    text.append("|---|---|---|---|\n");
    for (Way way : WAYS) {
      Rounds found = results.get(way.benchmark());
      if (found != null) {
        text.append(row(way, found, contract));
      }
    }
    return text.append('\n').append(goals()).toString();
  }

  private static String row(Way way, Rounds found, Rounds contract) {
    boolean oneAllReduce = !way.benchmark().contains("64") && !way.benchmark().contains("rank");
    String ratio =
        oneAllReduce && contract != null
            ? String.format(Locale.ROOT, "%.2f", contract.median() / found.median())
            : "";
    return String.format(
        Locale.ROOT,
        "| %s | %.1f (%.1f to %.1f) | %.0f | %s |%n",
        way.label(),
        found.median(),
        found.least(),
        found.most(),
        found.allocated(),
        ratio);
  }

  private String goals() {
    Rounds contract = results.get("ContractCalls.allReduce");
    Rounds jni = results.get("CCalls.jni");
    Rounds javaCpp = results.get("JavaCppCalls.allReduce");
    Rounds group = results.get("ContractCalls.group64");
    if (contract == null || jni == null || javaCpp == null || group == null) {
      return "";
    }
    double one = results.get("ContractCalls.calls64").median() / CALLS;
    return """
        - of JavaCPP's time: %s
        - of plain JNI's time: %s
        - a group of 64, in single calls of a loop of 64: %s
        """
        .formatted(
            Page.againstGoal(contract.median() / javaCpp.median(), 0.80),
            Page.againstGoal(contract.median() / jni.median(), 1.05),
            Page.againstGoal(group.median() / one, CALLS + 2));
  }
}
