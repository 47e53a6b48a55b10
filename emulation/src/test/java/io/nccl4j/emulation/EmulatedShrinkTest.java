package io.nccl4j.emulation;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.programs.FinishedProgram;
import java.lang.ProcessBuilder.Redirect;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/**
 * Survivors of a rank that does not respond, as processes, on NVIDIA's NCCL over the emulated CUDA.
 */
@Timeout(600)
class EmulatedShrinkTest {
  private static final int RANKS = 3;

  @TempDir private Path folder;

  /** NCCL's destroy would wait for the process of the lost rank; its abort does not. */
  @Test
  void survivorsCloseParentWhileLostRankIsSilent() throws Exception {
    Map<String, String> environment = EmulatedNccl.environment(RANKS);
    Files.setPosixFilePermissions(folder, PosixFilePermissions.fromString("rwx------"));
    Process silent =
        FinishedProgram.builder(environment, command(RANKS - 1))
            .redirectOutput(Redirect.DISCARD)
            .redirectError(Redirect.DISCARD)
            .start();
    try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
      List<Future<FinishedProgram>> survivors = new ArrayList<>();
      for (int rank = 0; rank < RANKS - 1; rank++) {
        List<String> command = command(rank);
        survivors.add(threads.submit(() -> FinishedProgram.run(environment, command)));
      }
      for (Future<FinishedProgram> survivor : survivors) {
        FinishedProgram program = survivor.get();
        assertEquals(0, program.status(), program::output);
        assertEquals("sum " + (RANKS - 1) + "\nclosed\n", program.out());
      }
      assertTrue(silent.isAlive(), "the lost rank has ended");
    } finally {
      silent.destroyForcibly();
    }
  }

  private List<String> command(int rank) {
    return FinishedProgram.java(
        ShrinkingRank.class.getName(), folder.toString(), "" + rank, "" + RANKS);
  }
}
