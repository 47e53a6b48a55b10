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
import org.openjdk.jmh.runner.options.ChainedOptionsBuilder;
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
  /** The name of what was measured in two threads at once. */
  private static final String TWO_THREADS = " in two threads";

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
          new Way("JavaCppCalls.group64", "JavaCPP, a group of 64 calls"),
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
    CommandLineOptions given = new CommandLineOptions(options.toArray(String[]::new));
    Options one =
        options(given).include("\\.(CCalls|GeneratedCalls|ContractCalls|JavaCppCalls)\\.").build();
    Options two =
        options(given)
            .include("\\.(ContractCalls|JavaCppCalls)\\.(allReduce|group64)$")
            .threads(2)
            .build();
    Calls calls = new Calls();
    for (int round = 1; round <= rounds; round++) {
      System.err.printf("round %d of %d%n", round, rounds);
      calls.add(new Runner(one).run(), "");
      calls.add(new Runner(two).run(), TWO_THREADS);
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

  private static ChainedOptionsBuilder options(CommandLineOptions given) {
    return new OptionsBuilder()
        .parent(given)
        .addProfiler(GCProfiler.class)
        .forks(1)
        .warmupIterations(given.getWarmupIterations().orElse(10))
        .warmupTime(given.getWarmupTime().orElse(TimeValue.milliseconds(150)))
        .measurementIterations(given.getMeasurementIterations().orElse(15))
        .measurementTime(given.getMeasurementTime().orElse(TimeValue.milliseconds(100)))
        .verbosity(VerboseMode.SILENT)
        .shouldFailOnError(true);
  }

  private void add(Iterable<RunResult> round, String threads) {
    for (RunResult result : round) {
      String name = result.getParams().getBenchmark();
      name = name.substring(name.lastIndexOf('.', name.lastIndexOf('.') - 1) + 1) + threads;
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
    return text.append('\n').append(scaling()).append('\n').append(goals()).toString();
  }

  private String scaling() {
    StringBuilder text =
        new StringBuilder(
            "| way | ns in one thread | ns in each of two | times as long |\n|---|---|---|---|\n");
    for (Way way : WAYS) {
      Rounds one = results.get(way.benchmark());
      Rounds two = results.get(way.benchmark() + TWO_THREADS);
      if (one != null && two != null) {
        text.append(
            String.format(
                Locale.ROOT,
                "| %s | %.1f | %.1f (%.1f to %.1f) | %.2f |%n",
                way.label(),
                one.median(),
                two.median(),
                two.least(),
                two.most(),
                two.median() / one.median()));
      }
    }
    return text.toString();
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
    Rounds javaCpp = results.get("JavaCppCalls.allReduce");
    return contract == null || javaCpp == null
        ? ""
        : "- of JavaCPP's time: %s%n"
            .formatted(Page.againstGoal(contract.median() / javaCpp.median(), 0.80));
  }
}
