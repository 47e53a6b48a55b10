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
 * Measures and compares all call paths to the library in one run.
 *
 * <p>Each round runs every benchmark once, in a new Java process, so that a temporary disturbance
 * of the machine affects all of them. The value of a round is the median of its iterations, and the
 * result is the median of the rounds.
 */
public final class Calls {
  /** The suffix of benchmarks measured in two concurrent threads. */
  private static final String TWO_THREADS = " in two threads";

  /** A call path: its benchmark and its label in the table. */
  private record Variant(String benchmark, String label) {}

  private static final List<Variant> VARIANTS =
      List.of(
          new Variant("CCalls.loop", "C, through the PLT"),
          new Variant("CCalls.jni", "plain JNI"),
          new Variant("GeneratedCalls.allReduce", "generated binding, no checks"),
          new Variant("GeneratedCalls.allReduceWithLongs", "linked with longs, no checks"),
          new Variant("ContractCalls.allReduce", "nccl4j `allReduce`, all checks"),
          new Variant("ContractCalls.allReduceInPlace", "nccl4j `allReduce` in place, all checks"),
          new Variant("JavaCppCalls.allReduce", "JavaCPP `ncclAllReduce`"),
          new Variant("ContractCalls.calls64", "nccl4j, 64 calls"),
          new Variant("ContractCalls.group64", "nccl4j, a group of 64 calls"),
          new Variant("JavaCppCalls.group64", "JavaCPP, a group of 64 calls"),
          new Variant("ContractCalls.rank", "nccl4j `rank()`"),
          new Variant("JavaCppCalls.rank", "JavaCPP `ncclCommUserRank`, reused pointer"),
          new Variant(
              "JavaCppCalls.rankIntoNewPointer", "JavaCPP `ncclCommUserRank`, new pointer"));

  /** The results of one benchmark, one per round. */
  private record Rounds(List<Double> nanos, List<Double> bytes) {
    double median() {
      return Page.median(nanos.stream().mapToDouble(Double::doubleValue).toArray());
    }

    double min() {
      return nanos.stream().mapToDouble(Double::doubleValue).min().orElseThrow();
    }

    double max() {
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
   * @param args {@code --rounds N}, {@code --write PAGE}, then JMH options
   * @throws RunnerException if a benchmark fails
   * @throws CommandLineOptionException if JMH does not know an option
   * @throws IOException if the page cannot be written
   */
  public static void main(String[] args)
      throws RunnerException, CommandLineOptionException, IOException {
    List<String> options = new ArrayList<>(List.of(args));
    int rounds = Integer.parseInt(takeOption(options, "--rounds", "5"));
    String page = takeOption(options, "--write", "");
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

  /** Removes an option and its value from a list and returns the value, or a default. */
  static String takeOption(List<String> options, String name, String defaultValue) {
    int at = options.indexOf(name);
    if (at < 0 || at + 1 == options.size()) {
      return defaultValue;
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
        "Median of %d rounds, each in new Java processes; in parentheses the minimum and maximum of a round.%n%n"
            .formatted(rounds));
    text.append("| call path | ns | heap bytes | nccl4j's `allReduce` relative to this |\n");
    text.append("|---|---|---|---|\n");
    for (Variant variant : VARIANTS) {
      Rounds found = results.get(variant.benchmark());
      if (found != null) {
        text.append(row(variant, found, contract));
      }
    }
    return text.append('\n').append(scaling()).append('\n').append(goals()).toString();
  }

  private String scaling() {
    StringBuilder text =
        new StringBuilder(
            "| call path | ns in one thread | ns in each of two threads | ratio |\n|---|---|---|---|\n");
    for (Variant variant : VARIANTS) {
      Rounds one = results.get(variant.benchmark());
      Rounds two = results.get(variant.benchmark() + TWO_THREADS);
      if (one != null && two != null) {
        text.append(
            String.format(
                Locale.ROOT,
                "| %s | %.1f | %.1f (%.1f to %.1f) | %.2f |%n",
                variant.label(),
                one.median(),
                two.median(),
                two.min(),
                two.max(),
                two.median() / one.median()));
      }
    }
    return text.toString();
  }

  private static String row(Variant variant, Rounds found, Rounds contract) {
    String benchmark = variant.benchmark();
    boolean oneAllReduce = !benchmark.contains("64") && !benchmark.contains("rank");
    String ratio =
        oneAllReduce && contract != null
            ? String.format(Locale.ROOT, "%.2f", contract.median() / found.median())
            : "";
    return String.format(
        Locale.ROOT,
        "| %s | %.1f (%.1f to %.1f) | %.0f | %s |%n",
        variant.label(),
        found.median(),
        found.min(),
        found.max(),
        found.allocated(),
        ratio);
  }

  private String goals() {
    Rounds contract = results.get("ContractCalls.allReduce");
    Rounds javaCpp = results.get("JavaCppCalls.allReduce");
    return contract == null || javaCpp == null
        ? ""
        : "- time relative to JavaCPP: %s%n"
            .formatted(Page.againstGoal(contract.median() / javaCpp.median(), 0.80));
  }
}
