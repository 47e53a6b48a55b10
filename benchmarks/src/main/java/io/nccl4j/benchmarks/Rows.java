package io.nccl4j.benchmarks;

import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/**
 * Measures result rows of one rank with {@code scripts/all-reduce-perf} and with a C program that
 * measures a row as nccl-tests does. Both run on the stand-in, whose kernels take a configured
 * time, so that the expected results are known.
 */
public final class Rows {
  private static final List<Integer> KERNEL_MICROS = List.of(40, 100, 400, 1000, 6000);
  private static final String BYTES = "1024";
  private static final String ITERATIONS = "20";

  /** The number of rows per process. */
  private static final String CYCLES = "5";

  private static final Duration TIMEOUT = Duration.ofMinutes(1);
  private static final double MIN_RATIO = 0.98;
  private static final double MAX_RATIO = 1.02;

  /** The times of rows, in microseconds. */
  private record Times(List<Double> outOfPlace, List<Double> inPlace) {
    Times() {
      this(new ArrayList<>(), new ArrayList<>());
    }

    void add(String outOfPlaceMicros, String inPlaceMicros) {
      outOfPlace.add(Double.valueOf(outOfPlaceMicros));
      inPlace.add(Double.valueOf(inPlaceMicros));
    }
  }

  private Rows() {}

  /**
   * Runs both programs in turn.
   *
   * @param args the number of rounds, the folder of the checkout, and optionally a page to write to
   * @throws IOException if a program cannot be started or fails, or the page cannot be written
   * @throws InterruptedException if this thread is interrupted
   */
  public static void main(String[] args) throws IOException, InterruptedException {
    int rounds = Integer.parseInt(args[0]);
    Path root = Path.of(args[1]);
    StringBuilder table =
        new StringBuilder(
            "| kernel, us | C | C in place | nccl4j | nccl4j in place | ratio | ratio in place |\n"
                + "|---|---|---|---|---|---|---|\n");
    boolean reached = true;
    for (int micros : KERNEL_MICROS) {
      Times c = new Times();
      Times java = new Times();
      for (int round = 0; round < rounds; round++) {
        for (String[] row : rows(root, micros, program(root))) {
          c.add(row[0], row[1]);
        }
        for (String[] row : rows(root, micros, command(root))) {
          java.add(row[5], row[9]);
        }
      }
      double outOfPlace = median(java.outOfPlace) / median(c.outOfPlace);
      double inPlace = median(java.inPlace) / median(c.inPlace);
      reached &= within(outOfPlace) && within(inPlace);
      table.append(
          String.format(
              Locale.ROOT,
              "| %d | %.2f | %.2f | %.2f | %.2f | %.3f | %.3f |%n",
              micros,
              median(c.outOfPlace),
              median(c.inPlace),
              median(java.outOfPlace),
              median(java.inPlace),
              outOfPlace,
              inPlace));
    }
    String report =
        Page.machine()
            + "Microseconds of one operation, median of %d rounds of %s rows each.%n%n"
                .formatted(rounds, CYCLES)
            + table
            + String.format(
                Locale.ROOT,
                "%n- ratios (goal: %.2f to %.2f, %s)%n",
                MIN_RATIO,
                MAX_RATIO,
                reached ? "reached" : "not reached");
    System.out.print(report);
    if (args.length > 2) {
      Page.replace(Path.of(args[2]), "rows", report);
    }
  }

  private static boolean within(double ratio) {
    return ratio >= MIN_RATIO && ratio <= MAX_RATIO;
  }

  private static double median(List<Double> times) {
    return Page.median(times.stream().mapToDouble(Double::doubleValue).toArray());
  }

  private static List<String> program(Path root) {
    return List.of(root.resolve("target/peers/nccl_row").toString(), BYTES, ITERATIONS, CYCLES);
  }

  private static List<String> command(Path root) {
    String script = root.resolve("scripts/all-reduce-perf").toString();
    return List.of(
        script,
        "--backend",
        "nccl",
        "-g",
        "1",
        "-b",
        BYTES,
        "-e",
        BYTES,
        "-n",
        ITERATIONS,
        "-N",
        CYCLES);
  }

  /** Runs a program on the stand-in; returns the columns of each result row. */
  private static List<String[]> rows(Path root, int kernelMicros, List<String> command)
      throws IOException, InterruptedException {
    ProcessBuilder builder = new ProcessBuilder(command);
    Map<String, String> standIn = new HashMap<>();
    standIn.put("NCCL4J_STANDIN_KERNEL_NS", String.valueOf(kernelMicros * 1000));
    standIn.put("NCCL4J_NCCL_LIBRARY", root.resolve("target/standin/libnccl.so.2").toString());
    standIn.put("NCCL4J_CUDART_LIBRARY", root.resolve("target/standin/libcudart.so.13").toString());
    builder.environment().putAll(standIn);
    List<String> output = new ArrayList<>();
    int status = Program.run(builder, TIMEOUT, output::add);
    if (status != 0) {
      throw new IOException(
          command + " ended with status " + status + ": " + String.join("\n", output));
    }
    return output.stream()
        .map(String::strip)
        .filter(line -> line.matches("[0-9].*"))
        .map(line -> line.split(" +", -1))
        .toList();
  }
}
