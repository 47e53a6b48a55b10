package io.nccl4j.benchmarks;

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * A program that runs all-reduces of the given modes and sizes and prints the measured times.
 *
 * @param kind the implementation that it measures
 * @param ranks the number of ranks
 * @param setting the configuration, to distinguish programs of one kind; the best one counts
 * @param command the command line without modes and sizes
 * @param environment additional environment variables
 */
record PeerProgram(
    Kind kind, int ranks, String setting, List<String> command, Map<String, String> environment) {
  private static final Duration TIMEOUT = Duration.ofMinutes(3);

  /** The exit status of a program with a wrong result, as defined in measure.h. */
  private static final int WRONG_RESULT = 3;

  /** The implementations that are compared. */
  enum Kind {
    OPEN_MPI("Open MPI", true),
    C_THREADS("threads in C", true),
    GLOO("Gloo", true),
    REFERENCE("nccl4j", false),
    RING("nccl4j, ring", false),
    SHARED_MEMORY("nccl4j, shared memory", false),
    TCP("nccl4j, TCP", false),
    TYPES("nccl4j, types", false);

    private final String label;
    private final boolean bestCounts;

    Kind(String label, boolean bestCounts) {
      this.label = label;
      this.bestCounts = bestCounts;
    }

    /** Returns whether programs of this kind have several settings, of which the best counts. */
    boolean bestCounts() {
      return bestCounts;
    }

    @Override
    public String toString() {
      return label;
    }
  }

  /** The size and mode of a result. */
  record Cell(long bytes, String mode) {}

  /**
   * One result.
   *
   * @param microseconds the time of one operation
   * @param heapBytes the bytes that one operation allocates on the Java heap; NaN for C programs
   */
  record Measurement(double microseconds, double heapBytes) {}

  /** Thrown when the program fails or does not print all results. */
  static class FailedException extends IOException {
    private static final long serialVersionUID = 1;

    FailedException(String message) {
      super(message);
    }
  }

  /** Thrown when the program reports that its result is wrong. */
  static final class WrongResultException extends FailedException {
    private static final long serialVersionUID = 1;

    WrongResultException(String message) {
      super(message);
    }
  }

  /** Runs the program and returns its results. */
  Map<Cell, Measurement> run(List<String> modes, List<Sizing> sizes)
      throws IOException, InterruptedException {
    List<String> all = new ArrayList<>(command);
    all.addAll(modes);
    sizes.forEach(size -> all.add(size.toString()));
    ProcessBuilder builder = new ProcessBuilder(all);
    builder.environment().putAll(environment);
    Map<Cell, Measurement> results = new HashMap<>();
    StringBuilder other = new StringBuilder();
    int status =
        Program.run(
            builder,
            TIMEOUT,
            line -> {
              if (line.matches("\\d+ \\S+ -?[0-9.]+.*")) {
                String[] words = line.split(" ");
                results.put(
                    new Cell(Long.parseLong(words[0]), words[1]),
                    new Measurement(
                        Double.parseDouble(words[2]),
                        words.length > 3 ? Double.parseDouble(words[3]) : Double.NaN));
              } else {
                other.append(line).append('\n');
              }
            });
    if (status == WRONG_RESULT) {
      throw new WrongResultException(this + " failed its own check: " + other.toString().strip());
    }
    if (status != 0 || results.size() != modes.size() * sizes.size()) {
      throw new FailedException(this + " ended with status " + status + ": " + other);
    }
    return results;
  }

  @Override
  public String toString() {
    return kind + ", " + ranks + " ranks" + (setting.isEmpty() ? "" : ", " + setting);
  }
}
