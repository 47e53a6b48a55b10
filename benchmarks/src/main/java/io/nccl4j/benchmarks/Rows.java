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

  /** The times of rows, in microseconds. */
  private record Times(List<Double> outOfPlace, List<Double> inPlace) {
    Times() {
      this(new ArrayList<>(), new ArrayList<>());
    }

    void add(String outOfPlaceMicros, String inPlaceMicros) {
      outOfPlace.add(Double.valueOf(outOfPlaceMicros));
      inPlace.add(Double.valueOf(inPlaceMicros));
    }

    double outOfPlaceMedian() {
      return Report.median(outOfPlace);
    }

    double inPlaceMedian() {
      return Report.median(inPlace);
    }
  }

  private Rows() {}

  /**
   * Runs both programs in turn.
   *
   * @param args the number of rounds and the folder of the checkout
   * @throws IOException if a program cannot be started or fails
   * @throws InterruptedException if this thread is interrupted
   */
  public static void main(String[] args) throws IOException, InterruptedException {
    int rounds = Integer.parseInt(args[0]);
    Path root = Path.of(args[1]);
    StringBuilder table =
        new StringBuilder(
            "| kernel, us | C | C in place | nccl4j | nccl4j in place | ratio | ratio in place |\n"
                + "|---|---|---|---|---|---|---|\n");
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
      table.append(
          String.format(
              Locale.ROOT,
              "| %d | %.2f | %.2f | %.2f | %.2f | %.3f | %.3f |%n",
              micros,
              c.outOfPlaceMedian(),
              c.inPlaceMedian(),
              java.outOfPlaceMedian(),
              java.inPlaceMedian(),
              java.outOfPlaceMedian() / c.outOfPlaceMedian(),
              java.inPlaceMedian() / c.inPlaceMedian()));
    }
    System.out.printf(
        "%sMicroseconds of one operation, median of %d rounds of %s rows each.%n%n%s",
        Report.machine(), rounds, CYCLES, table);
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
