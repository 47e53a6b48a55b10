package io.nccl4j.rendezvous;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.NcclTimeoutException;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.rendezvous.Token;
import io.nccl4j.internal.util.Deadline;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.CodeSource;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.apache.logging.log4j.LogManager;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What is particular to the exchange through files; {@link RendezvousTest} has the rest. */
class FileRendezvousTest {
  private static final Duration SHORT = Duration.ofMillis(300);
  private static final Duration LONG = Duration.ofSeconds(30);

  @TempDir Path directory;

  private Rendezvous rendezvous(int rank, int size, Duration timeout) {
    return Rendezvous.files(directory, RankInfo.of(rank, size).withTimeout(timeout));
  }

  private Path file(String name) {
    return directory.resolve("nccl4j-" + Token.ofText("").toHex() + "-" + name);
  }

  private List<String> leftovers() throws IOException {
    try (Stream<Path> files = Files.list(directory)) {
      return files.map(file -> file.getFileName().toString()).toList();
    }
  }

  private static void awaitFile(Path file) throws Exception {
    Deadline deadline = Deadline.after(LONG);
    while (!Files.exists(file)) {
      assertFalse(deadline.passed(), () -> file + " was not created");
      Thread.sleep(5);
    }
  }

  @Test
  void absentDirectoryIsCreatedForItsOwnerOnly() throws Exception {
    Path inner = directory.resolve("a/b");
    Rendezvous rendezvous = Rendezvous.files(inner, RankInfo.of(0, 1));
    assertEquals("Rendezvous[rank 0 of 1 at " + inner + "]", rendezvous.toString());
    assertEquals(
        PosixFilePermissions.fromString("rwx------"), Files.getPosixFilePermissions(inner));
  }

  @Test
  void fileInsteadOfDirectoryIsNamed() throws Exception {
    Path file = Files.writeString(directory.resolve("file"), "x");
    RendezvousException thrown =
        assertThrows(RendezvousException.class, () -> Rendezvous.files(file, RankInfo.of(0, 2)));
    assertTrue(thrown.getMessage().contains(file.toString()), thrown.getMessage());
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1})
  void filesAreItsOwnersAndRemovedAtTheEndOfTheWait(int rank) throws Exception {
    // The interrupt comes while the rank pauses, or while it reads or writes a file.
    for (int round = 0; round < 100; round++) {
      FutureTask<UniqueId> task =
          new FutureTask<>(() -> rendezvous(rank, 2, LONG).exchange(RankThreads::newId));
      Thread thread = RankThreads.startThread(task);
      awaitFile(file("rank-" + rank));
      assertEquals(
          PosixFilePermissions.fromString("rw-------"),
          Files.getPosixFilePermissions(file("rank-" + rank)));
      thread.interrupt();
      RankThreads.failure(RendezvousException.class, task);
      assertEquals(List.of(), leftovers());
    }
  }

  @Test
  void pipesAndLinksAreNotOpenedButReplaced() throws Exception {
    Path pipe = file("rank-0");
    assertEquals(0, new ProcessBuilder("mkfifo", pipe.toString()).start().waitFor());
    Path link = Files.createSymbolicLink(file("answer-1"), Path.of("/dev/zero"));
    Files.write(file("receipt-1"), new byte[1 << 20]);
    NcclTimeoutException late =
        assertThrows(
            NcclTimeoutException.class, () -> rendezvous(1, 2, SHORT).exchange(RankThreads::newId));
    assertTrue(late.getMessage().contains(pipe + " is not a regular file"), late.getMessage());
    assertTrue(late.getMessage().contains(link + " is not a regular file"), late.getMessage());
    FutureTask<UniqueId> one =
        RankThreads.start(() -> rendezvous(1, 2, LONG).exchange(RankThreads::newId));
    UniqueId id = rendezvous(0, 2, LONG).exchange(RankThreads::newId);
    assertEquals(id, RankThreads.join(one));
    assertEquals(List.of(), leftovers());
  }

  @Test
  void removedDirectoryIsAnError() throws Exception {
    Path gone = directory.resolve("gone");
    Rendezvous rendezvous = Rendezvous.files(gone, RankInfo.of(1, 2).withTimeout(LONG));
    Files.delete(gone);
    RendezvousException failed =
        assertThrows(RendezvousException.class, () -> rendezvous.exchange(RankThreads::newId));
    assertTrue(failed.getMessage().contains(gone + "/"), failed.getMessage());
  }

  @Test
  void processesExchangeAnIdAfterAKilledRun() throws Exception {
    // Rank 0 of the first run answers, because rank 2 has left its announcement.
    kill(List.of(launch(2)), file("rank-2"));
    List<Process> killed = List.of(launch(0), launch(1));
    kill(killed, file("answer-2"));
    assertTrue(leftovers().size() >= 2, () -> "the killed run left its files");

    List<Process> ranks = new ArrayList<>();
    for (int rank = 2; rank >= 0; rank--) {
      ranks.add(launch(rank));
    }
    List<String> ids = new ArrayList<>();
    for (Process rank : ranks) {
      assertTrue(rank.waitFor(60, TimeUnit.SECONDS), "a rank ends");
      String output = new String(rank.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
      assertEquals(0, rank.exitValue(), output);
      ids.add(output.strip().lines().toList().getLast());
    }
    assertEquals(List.of(ids.getFirst(), ids.getFirst(), ids.getFirst()), ids);
    assertEquals(List.of(), leftovers());
  }

  private static void kill(List<Process> processes, Path when) throws Exception {
    awaitFile(when);
    for (Process process : processes) {
      process.destroyForcibly().waitFor();
    }
  }

  private Process launch(int rank) throws Exception {
    String classPath =
        String.join(
            ":",
            location(Rendezvous.class),
            Path.of("target", "test-classes").toAbsolutePath().toString(),
            location(LogManager.class));
    return new ProcessBuilder(
            Path.of(System.getProperty("java.home"), "bin", "java").toString(),
            "-XX:TieredStopAtLevel=1",
            "-cp",
            classPath,
            FileRank.class.getName(),
            directory.toString(),
            "" + rank,
            "3",
            "50000")
        .redirectErrorStream(true)
        .start();
  }

  private static String location(Class<?> type) throws Exception {
    CodeSource source = type.getProtectionDomain().getCodeSource();
    return Path.of(source.getLocation().toURI()).toString();
  }
}
