package io.nccl4j.benchmarks;

import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Measures the time from the start of {@code scripts/all-reduce-perf} to its first result, with and
 * without the AOT cache that the build creates.
 */
public final class StartUp {
  private static final Duration TIMEOUT = Duration.ofMinutes(1);
  private static final double SECOND = 1e9;

  /** A command to start, with its environment. */
  private record Variant(String label, Map<String, String> environment, List<String> command) {}

  private StartUp() {}

  /**
   * Starts each command once per round.
   *
   * @param args the number of rounds, the folder of the checkout, and the {@code java} that the
   *     scripts start
   * @throws IOException if the command cannot be started or fails
   * @throws InterruptedException if this thread is interrupted
   */
  public static void main(String[] args) throws IOException, InterruptedException {
    int rounds = Integer.parseInt(args[0]);
    Path root = Path.of(args[1]);
    List<Variant> variants = variants(root, args[2]);
    Map<Variant, List<Double>> seconds = new LinkedHashMap<>();
    variants.forEach(variant -> seconds.put(variant, new ArrayList<>()));
    // Round 0 is not counted: it reads everything from disk.
    for (int round = 0; round <= rounds; round++) {
      for (Variant variant : variants) {
        double taken = untilFirstResult(variant);
        if (round > 0) {
          seconds.get(variant).add(taken);
        }
      }
    }
    System.out.print(report(rounds, seconds));
  }

  private static List<Variant> variants(Path root, String java) {
    String script = root.resolve("scripts/all-reduce-perf").toString();
    List<String> smallest = List.of("-b", "8", "-e", "8", "-n", "1", "-w", "0");
    List<String> reference = command(script, smallest, "--backend", "reference", "--ranks", "2");
    List<String> nccl = command(script, smallest, "--backend", "nccl", "-g", "2");
    Map<String, String> standIn =
        Map.of(
            "NCCL4J_NCCL_LIBRARY", root.resolve("target/standin/libnccl.so.2").toString(),
            "NCCL4J_CUDART_LIBRARY", root.resolve("target/standin/libcudart.so.13").toString());
    return List.of(
        new Variant("reference, 2 ranks, with the cache", Map.of(), reference),
        new Variant("reference, 2 ranks, without", withoutCache(Map.of()), reference),
        new Variant("NCCL backend on the stand-in, 2 ranks, with the cache", standIn, nccl),
        new Variant("NCCL backend on the stand-in, 2 ranks, without", withoutCache(standIn), nccl),
        new Variant("`java -version`", Map.of(), List.of(java, "-version")));
  }

  private static List<String> command(String script, List<String> smallest, String... more) {
    List<String> command = new ArrayList<>(List.of(script));
    command.addAll(List.of(more));
    command.addAll(smallest);
    return command;
  }

  private static Map<String, String> withoutCache(Map<String, String> environment) {
    Map<String, String> without = new LinkedHashMap<>(environment);
    without.put("JAVA_TOOL_OPTIONS", "-XX:AOTMode=off");
    return without;
  }

  private static double untilFirstResult(Variant variant) throws IOException, InterruptedException {
    ProcessBuilder builder = new ProcessBuilder(variant.command());
    builder.environment().putAll(variant.environment());
    List<String> output = new ArrayList<>();
    List<Long> results = new ArrayList<>();
    long start = System.nanoTime();
    int status =
        Program.run(
            builder,
            TIMEOUT,
            line -> {
              output.add(line);
              // Result lines begin with a size.
              if (line.strip().matches("\\d+ .*")) {
                results.add(System.nanoTime());
              }
            });
    results.add(System.nanoTime());
    if (status != 0) {
      throw new IOException(
          variant.command() + " ended with status " + status + ": " + String.join("\n", output));
    }
    return (results.getFirst() - start) / SECOND;
  }

  private static String report(int rounds, Map<Variant, List<Double>> seconds) throws IOException {
    StringBuilder text = new StringBuilder(Report.machine());
    text.append(
        "Median of %d rounds; in parentheses the minimum and maximum.%n%n".formatted(rounds));
    text.append("| start | seconds to the first result |\n|---|---|\n");
    seconds.forEach(
        (variant, taken) ->
            text.append("| %s | %s |%n".formatted(variant.label(), Report.spread(taken, 2))));
    return text.toString();
  }
}
