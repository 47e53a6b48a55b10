package io.nccl4j.benchmarks;

import java.io.BufferedReader;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;

/**
 * One way to carry out all-reduces: a program that takes modes and sizes and prints what it has
 * measured.
 *
 * @param kind what it is compared as
 * @param ranks how many ranks it runs
 * @param setting which of several programs of its kind it is; the best one counts
 * @param command what starts it, but for modes and sizes
 * @param environment what the program is told beside
 */
record PeerProgram(
    Kind kind, int ranks, String setting, List<String> command, Map<String, String> environment) {
  private static final int MOST_MINUTES = 3;

  /** The status with which a program ends whose result is not the sum, as measure.h has it. */
  private static final int WRONG_RESULT = 3;

  private static final Set<String> USUAL = Set.of("default", "segmented ring");

  /** What is compared. */
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

    /** Returns whether programs of this kind do the same in several ways, of which one is best. */
    boolean bestCounts() {
      return bestCounts;
    }

    @Override
    public String toString() {
      return label;
    }
  }

  /** What a result is of: a size, and what else the program was told. */
  record Cell(long bytes, String mode) {}

  /**
   * One result.
   *
   * @param microseconds of one operation
   * @param heapBytes what one operation allocates, not a number where it has no heap
   */
  record Measurement(double microseconds, double heapBytes) {}

  /** Thrown when the program did not do what was asked. */
  static class FailedException extends IOException {
    private static final long serialVersionUID = 1;

    FailedException(String message) {
      super(message);
    }
  }

  /** Thrown when the program found its own result wrong. */
  static final class WrongResultException extends FailedException {
    private static final long serialVersionUID = 1;

    WrongResultException(String message) {
      super(message);
    }
  }

  /** Returns whether this is one of those that the goals were set against. */
  boolean usual() {
    return kind == Kind.OPEN_MPI && USUAL.contains(setting);
  }

  /** Runs the program and returns what it printed. */
  Map<Cell, Measurement> run(List<String> modes, List<Sizing> sizes)
      throws IOException, InterruptedException {
    List<String> all = new ArrayList<>(command);
    all.addAll(modes);
    sizes.forEach(size -> all.add(size.toString()));
    ProcessBuilder builder = new ProcessBuilder(all).redirectErrorStream(true);
    builder.environment().putAll(environment);
    Process process = builder.start();
    Thread ending = Thread.ofVirtual().start(() -> endLate(process));
    Map<Cell, Measurement> results = new HashMap<>();
    StringBuilder other = new StringBuilder();
    try (BufferedReader lines = process.inputReader()) {
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
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
      }
    }
    int status = process.waitFor();
    ending.interrupt();
    if (status == WRONG_RESULT) {
      throw new WrongResultException(this + " failed its own check: " + other.toString().strip());
    }
    if (status != 0 || results.size() != modes.size() * sizes.size()) {
      throw new FailedException(this + " ended with status " + status + ": " + other);
    }
    return results;
  }

  private static void endLate(Process process) {
    try {
      if (!process.waitFor(MOST_MINUTES, TimeUnit.MINUTES)) {
        process.descendants().forEach(ProcessHandle::destroyForcibly);
        process.destroyForcibly();
      }
    } catch (InterruptedException e) {
      // The program has ended by itself.
      Thread.currentThread().interrupt();
    }
  }

  @Override
  public String toString() {
    return kind + ", " + ranks + " ranks" + (setting.isEmpty() ? "" : ", " + setting);
  }
}
