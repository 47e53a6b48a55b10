package io.nccl4j.benchmarks;

import io.nccl4j.benchmarks.PeerProgram.FailedException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.OptionalDouble;
import java.util.concurrent.TimeUnit;

/**
 * Runs {@code peers/cache_line_latency.c}, the program that measures how long a cache line takes
 * from one processor to another.
 *
 * @param command the command line
 */
record CacheLineLatency(List<String> command) {
  private static final int TIMEOUT_SECONDS = 60;

  /** The output on a machine with one processor. */
  private static final String UNMEASURED = "unmeasured";

  /** Returns the one-way latency in nanoseconds, or empty if there is one processor. */
  OptionalDouble measure() throws IOException, InterruptedException {
    Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
    // The output is one line, which fits into the pipe's buffer.
    if (!process.waitFor(TIMEOUT_SECONDS, TimeUnit.SECONDS)) {
      process.destroyForcibly();
      throw new FailedException("cache_line_latency did not end within " + TIMEOUT_SECONDS + " s");
    }
    String printed =
        new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8).strip();
    if (process.exitValue() != 0) {
      throw new FailedException(
          "cache_line_latency ended with status %d: %s".formatted(process.exitValue(), printed));
    }
    return parse(printed);
  }

  /** Parses the output of the program. */
  static OptionalDouble parse(String printed) throws FailedException {
    if (printed.equals(UNMEASURED)) {
      return OptionalDouble.empty();
    }
    if (!printed.matches("\\d+(\\.\\d+)?")) {
      throw new FailedException(
          "cache_line_latency printed '%s'; it must be nanoseconds or '%s'"
              .formatted(printed, UNMEASURED));
    }
    return OptionalDouble.of(Double.parseDouble(printed));
  }
}
