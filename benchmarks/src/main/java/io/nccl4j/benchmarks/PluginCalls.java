package io.nccl4j.benchmarks;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.plugin.NcclPlugins;
import io.nccl4j.verification.Verification;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Measures all-reduces of two ranks per second: without plugins, with a profiler, and with
 * verification of one in 1,000. Each variant runs in a new process, since plugins are installed
 * before NCCL is loaded.
 */
public final class PluginCalls {
  private static final Duration TIMEOUT = Duration.ofMinutes(2);
  private static final int RANKS = 2;
  private static final int COUNT = 1024;
  private static final int CALLS = 100_000;
  private static final int BETWEEN_WAITS = 100;
  private static final double SECOND = 1e9;

  /** What is on. */
  private enum Variant {
    NONE("no plugin"),
    PROFILER("a profiler that does nothing"),
    VERIFICATION("verification of one in 1,000");

    private final String label;

    Variant(String label) {
      this.label = label;
    }
  }

  private PluginCalls() {}

  /**
   * Measures all variants, or one.
   *
   * @param args the number of rounds and the command that starts this program, or a variant
   * @throws IOException if the program cannot be started or fails
   * @throws InterruptedException if this thread is interrupted
   */
  public static void main(String[] args) throws IOException, InterruptedException {
    if (args.length == 1) {
      measure(Variant.valueOf(args[0]));
      return;
    }
    int rounds = Integer.parseInt(args[0]);
    List<String> command = List.of(args).subList(1, args.length);
    Map<Variant, List<Double>> results = new LinkedHashMap<>();
    for (int round = 0; round < rounds; round++) {
      for (Variant variant : Variant.values()) {
        double perSecond = run(command, variant);
        results.computeIfAbsent(variant, first -> new ArrayList<>()).add(perSecond);
      }
    }
    StringBuilder text = new StringBuilder(Report.machine());
    text.append(
        "Median of %d rounds; in parentheses the minimum and maximum.%n%n".formatted(rounds));
    text.append("| with | all-reduces per second |\n|---|---|\n");
    results.forEach(
        (variant, numbers) ->
            text.append("| %s | %s |%n".formatted(variant.label, Report.spread(numbers, 0))));
    System.out.print(text);
  }

  private static double run(List<String> command, Variant variant)
      throws IOException, InterruptedException {
    List<String> line = new ArrayList<>(command);
    line.add(variant.name());
    List<String> output = new ArrayList<>();
    int status = Program.run(new ProcessBuilder(line), TIMEOUT, output::add);
    if (status != 0) {
      throw new IOException(line + " ended with status " + status + ": " + output);
    }
    return Double.parseDouble(output.getLast());
  }

  private static void measure(Variant variant) {
    switch (variant) {
      case PROFILER -> NcclPlugins.addProfiler(event -> {});
      case VERIFICATION -> Verification.install();
      case NONE -> {}
    }
    try (Backend backend = Backend.nccl()) {
      backend.runRanks(RANKS, comm -> measure(comm, variant));
    }
  }

  private static void measure(Communicator comm, Variant variant) {
    if (variant != Variant.VERIFICATION) {
      report(comm);
      return;
    }
    try (Verification verification = Verification.sampling(comm, 1_000)) {
      report(comm);
      if (verification.counts().bits() == 0) {
        throw new IllegalStateException("nothing was verified: " + verification.counts());
      }
    }
  }

  private static void report(Communicator comm) {
    try (Stream stream = comm.newStream();
        Buffer buffer = comm.newBuffer(DataType.FLOAT32, COUNT)) {
      buffer.fill((byte) 0, stream);
      allReduce(comm, buffer, stream); // warms up
      long start = System.nanoTime();
      allReduce(comm, buffer, stream);
      double seconds = (System.nanoTime() - start) / SECOND;
      if (comm.rank() == 0) {
        System.out.println(CALLS / seconds);
      }
    }
  }

  private static void allReduce(Communicator comm, Buffer buffer, Stream stream) {
    for (int i = 0; i < CALLS; i++) {
      comm.allReduce(buffer, buffer, ReduceOp.MAX, stream);
      if (i % BETWEEN_WAITS == 0) {
        stream.synchronize();
      }
    }
    stream.synchronize();
  }
}
