package io.nccl4j.benchmarks;

import java.io.BufferedReader;
import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.function.Consumer;

/** Runs programs that may hang. */
final class Program {
  private Program() {}

  /**
   * Runs a program, and kills it and its descendants after a timeout; returns its exit status.
   *
   * @param line takes each line of its output and errors, as soon as it is printed
   */
  static int run(ProcessBuilder builder, Duration timeout, Consumer<String> line)
      throws IOException, InterruptedException {
    Process process = builder.redirectErrorStream(true).start();
    Thread watchdog = Thread.ofVirtual().start(() -> killAfter(timeout, process));
    try (BufferedReader lines = process.inputReader()) {
      for (String next = lines.readLine(); next != null; next = lines.readLine()) {
        line.accept(next);
      }
      return process.waitFor();
    } finally {
      watchdog.interrupt();
      // Still running only if this method fails.
      kill(process);
    }
  }

  private static void killAfter(Duration timeout, Process process) {
    try {
      if (!process.waitFor(timeout)) {
        kill(process);
      }
    } catch (InterruptedException e) {
      // The program has ended before the timeout.
      Thread.currentThread().interrupt();
    }
  }

  private static void kill(Process process) {
    List<ProcessHandle> descendants = process.descendants().toList();
    // First, so that it does not report their end. Process.destroyForcibly would close the output
    // while it is read.
    process.toHandle().destroyForcibly();
    descendants.forEach(ProcessHandle::destroyForcibly);
  }
}
