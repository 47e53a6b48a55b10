package io.nccl4j.benchmarks;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Stream;

/** Runs {@link ReferenceRanks} in several processes, one per rank, and waits for them. */
public final class ReferenceProcesses {
  private ReferenceProcesses() {}

  /**
   * Starts the processes and waits for them.
   *
   * @param args the number of ranks, the algorithm, the transport, modes, sizes
   * @throws IOException if a process cannot be started or fails
   * @throws InterruptedException if this thread is interrupted
   */
  public static void main(String[] args) throws IOException, InterruptedException {
    Path directory = Files.createTempDirectory("nccl4j-bench-");
    List<Process> processes = new ArrayList<>();
    try {
      for (int rank = 0; rank < Integer.parseInt(args[0]); rank++) {
        List<String> command = PeerPrograms.java(ReferenceRanks.class);
        command.addAll(Arrays.asList(args).subList(0, 3));
        command.addAll(List.of(String.valueOf(rank), directory.toString()));
        command.addAll(Arrays.asList(args).subList(3, args.length));
        processes.add(new ProcessBuilder(command).inheritIO().start());
      }
      for (Process process : processes) {
        int status = process.waitFor();
        if (status != 0) {
          throw new IOException("a rank ended with status " + status);
        }
      }
    } finally {
      processes.forEach(Process::destroyForcibly);
      try (Stream<Path> files = Files.list(directory)) {
        for (Path file : files.toList()) {
          Files.delete(file);
        }
      }
      Files.delete(directory);
    }
  }
}
