package io.nccl4j.benchmarks;

import io.nccl4j.benchmarks.PeerProgram.FailedException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.OptionalDouble;
import java.util.concurrent.TimeUnit;

/**
 * The program that measures how long a cache line takes from one processor to another, {@code
 * peers/handoff.c}.
 *
 * @param command what starts it
 */
record CacheLineLatency(List<String> command) {
  private static final int MOST_SECONDS = 60;

  /** What the program prints where there is one processor. */
  private static final String UNMEASURED = "unmeasured";

  /** Returns nanoseconds one way; empty where there is one processor. */
  OptionalDouble measure() throws IOException, InterruptedException {
    Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
    // What it prints is one line, which a pipe holds until it has ended.
    if (!process.waitFor(MOST_SECONDS, TimeUnit.SECONDS)) {
      process.destroyForcibly();
      throw new FailedException("handoff did not end within " + MOST_SECONDS + " s");
    }
    String printed =
        new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8).strip();
    if (process.exitValue() != 0) {
      throw new FailedException(
          "handoff ended with status %d: %s".formatted(process.exitValue(), printed));
    }
    return parse(printed);
  }

  /** Reads what the program prints. */
  static OptionalDouble parse(String printed) throws FailedException {
    if (printed.equals(UNMEASURED)) {
      return OptionalDouble.empty();
    }
    if (!printed.matches("\\d+(\\.\\d+)?")) {
      throw new FailedException(
          "handoff printed '%s'; it must be nanoseconds or '%s'".formatted(printed, UNMEASURED));
    }
    return OptionalDouble.of(Double.parseDouble(printed));
  }
}
