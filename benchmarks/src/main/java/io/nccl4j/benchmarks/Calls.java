package io.nccl4j.benchmarks;

import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
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
          new Variant("ContractCalls.allReduce", "nccl4j `allReduce`, all checks"),
          new Variant("JavaCppCalls.allReduce", "JavaCPP `ncclAllReduce`"),
          new Variant("ContractCalls.calls64", "nccl4j, 64 calls"),
          new Variant("ContractCalls.group64", "nccl4j, a group of 64 calls"),
          new Variant("JavaCppCalls.group64", "JavaCPP, a group of 64 calls"));

  /** The results of one benchmark, one per round. */
  private record Rounds(List<Double> nanos, List<Double> bytes) {}

  private final Map<String, Rounds> results = new LinkedHashMap<>();

  private Calls() {}

  /**
   * Runs the benchmarks.
   *
   * @param args {@code --rounds N}, then JMH options
   * @throws RunnerException if a benchmark fails
   * @throws CommandLineOptionException if JMH does not know an option
   * @throws IOException if the machine cannot be described
   */
  public static void main(String[] args)
      throws RunnerException, CommandLineOptionException, IOException {
    List<String> options = new ArrayList<>(List.of(args));
    int rounds = Integer.parseInt(takeOption(options, "--rounds", "5"));
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
    System.out.print(calls.report(rounds));
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
    StringBuilder text = new StringBuilder(Report.machine());
    text.append(
        "Median of %d rounds, each in new Java processes; in parentheses the minimum and maximum of a round.%n%n"
            .formatted(rounds));
    text.append("| call path | ns | ns in each of two threads | heap bytes |\n");
    text.append("|---|---|---|---|\n");
    for (Variant variant : VARIANTS) {
      Rounds one = results.get(variant.benchmark());
      Rounds two = results.get(variant.benchmark() + TWO_THREADS);
      if (one != null) {
        text.append(
            "| %s | %s | %s | %.0f |%n"
                .formatted(
                    variant.label(),
                    Report.spread(one.nanos(), 1),
                    two == null ? "" : Report.spread(two.nanos(), 1),
                    Report.median(one.bytes())));
      }
    }
    return text.toString();
  }
}
