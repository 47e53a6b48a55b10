package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Files of shared memory whose maker was killed before another process took the name away. */
class SharedMemoryFilesTest {
  @TempDir private Path folder;

  private Set<Path> files() throws IOException {
    try (Stream<Path> files = Files.list(folder)) {
      return files.collect(Collectors.toSet());
    }
  }

  /** Starts a process that makes a link's file in the folder, and waits until the file is there. */
  private Process startMaker() throws IOException {
    return LinkPeer.start("", LinkMaker.class, folder.toString());
  }

  private static Path awaitFile(Process maker) throws IOException {
    BufferedReader lines = maker.inputReader();
    return Path.of(lines.readLine());
  }

  private static void kill(Process maker) throws InterruptedException {
    maker.destroyForcibly();
    assertTrue(maker.waitFor(30, TimeUnit.SECONDS));
  }

  @Test
  void nextProcessDeletesFileOfKilledMakerOnly() throws Exception {
    Process killed = startMaker();
    Process alive = startMaker();
    Process next = null;
    try {
      Path left = awaitFile(killed);
      Path used = awaitFile(alive);
      kill(killed);
      assertEquals(Set.of(left, used), files());
      next = startMaker();
      Path own = awaitFile(next);
      assertEquals(Set.of(used, own), files());
    } finally {
      kill(killed);
      kill(alive);
      if (next != null) {
        kill(next);
      }
    }
  }
}
