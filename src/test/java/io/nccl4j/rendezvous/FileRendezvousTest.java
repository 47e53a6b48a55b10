package io.nccl4j.rendezvous;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.NcclTimeoutException;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.rendezvous.RankBackend;
import io.nccl4j.internal.rendezvous.Token;
import io.nccl4j.internal.rendezvous.file.RoundDirectory;
import io.nccl4j.internal.util.Deadline;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.CodeSource;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.apache.logging.log4j.LogManager;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class FileRendezvousTest {
  private static final Duration SHORT = Duration.ofMillis(300);
  private static final Duration LONG = Duration.ofSeconds(30);

  @TempDir Path directory;

  private FileRendezvous rendezvous(int rank, int size, Duration timeout) {
    return FileRendezvous.in(directory, RankInfo.of(rank, size).withTimeout(timeout));
  }

  private RoundDirectory files(int rank, int size) {
    return new RoundDirectory(directory, RankInfo.of(rank, size).jobRank(), 1);
  }

  private List<String> leftovers() throws IOException {
    try (Stream<Path> files = Files.list(directory)) {
      return files.map(file -> file.getFileName().toString()).toList();
    }
  }

  private void awaitFile(Path file) throws Exception {
    Deadline deadline = Deadline.after(LONG);
    while (!Files.exists(file)) {
      assertFalse(deadline.passed(), () -> file + " was not created");
      Thread.sleep(5);
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 5, 64})
  void allRanksGetTheIdOfEachRoundAndNothingIsLeft(int size) throws Exception {
    RankThreads.exchange(size, 3, rank -> rendezvous(rank, size, LONG));
    assertEquals(List.of(), leftovers());
  }

  @Test
  void jobIdsSeparateRunsInOneDirectory() throws Exception {
    List<FutureTask<Void>> runs = new ArrayList<>();
    for (String run : List.of("job 1", "job 2", "")) {
      runs.add(
          RankThreads.start(
              () -> {
                RankThreads.exchange(
                    4,
                    3,
                    rank ->
                        FileRendezvous.in(
                            directory, RankInfo.of(rank, 4).withJobId(run).withTimeout(LONG)));
                return null;
              }));
    }
    for (FutureTask<Void> run : runs) {
      RankThreads.join(run);
    }
    assertEquals(List.of(), leftovers());
  }

  @Test
  void absentDirectoryIsCreatedForItsOwnerOnly() throws Exception {
    Path inner = directory.resolve("a/b");
    FileRendezvous rendezvous = FileRendezvous.in(inner, RankInfo.of(0, 1));
    assertEquals(inner, rendezvous.directory());
    assertEquals(
        PosixFilePermissions.fromString("rwx------"), Files.getPosixFilePermissions(inner));
  }

  @Test
  void fileInsteadOfDirectoryIsNamed() throws Exception {
    Path file = Files.writeString(directory.resolve("file"), "x");
    RendezvousException thrown =
        assertThrows(RendezvousException.class, () -> FileRendezvous.in(file, RankInfo.of(0, 2)));
    assertTrue(thrown.getMessage().contains(file.toString()), thrown.getMessage());
  }

  @Test
  void filesAreAccessibleToTheirOwnerOnly() throws Exception {
    files(1, 3)
        .write(new RoundDirectory.Announcement(Token.random(), Token.NONE, RankBackend.UNKNOWN));
    assertEquals(
        PosixFilePermissions.fromString("rw-------"),
        Files.getPosixFilePermissions(files(1, 3).rankFile(1)));
  }

  @Test
  void rankZeroNamesMissingRanksAndRemovesItsFiles() throws Exception {
    files(4, 5)
        .write(new RoundDirectory.Announcement(Token.random(), Token.NONE, RankBackend.UNKNOWN));
    // On a busy machine, rank 2 may touch its file late, and rank 4's file be deleted late.
    Duration enough = Duration.ofSeconds(5);
    Duration longer = enough.multipliedBy(2);
    FutureTask<UniqueId> second =
        RankThreads.start(() -> rendezvous(2, 5, longer).exchange(RankThreads::newId));
    awaitFile(files(2, 5).rankFile(2));
    NcclTimeoutException timeout =
        assertThrows(
            NcclTimeoutException.class,
            () -> rendezvous(0, 5, enough).exchange(RankThreads::newId));
    // Rank 2 waits; rank 4's announcement is of a process that has ended.
    assertTrue(timeout.getMessage().contains("missing ranks 1, 3-4 of 5"), timeout.getMessage());
    assertTrue(timeout.getMessage().contains("(rank 4 left an announcement"), timeout.getMessage());
    Files.delete(files(4, 5).rankFile(4));
    NcclTimeoutException other = RankThreads.failure(NcclTimeoutException.class, second);
    assertTrue(
        other
            .getMessage()
            .contains("rank 0 has not published round 1 (no announcement of ranks 0-1, 3-4) in "),
        other.getMessage());
    assertEquals(List.of(), leftovers());
  }

  @Test
  void fileDifferentBackendsFailOnEveryRank() throws Exception {
    RankThreads.assertBackendMismatch(
        "rank 1 uses the reference backend and rank 0 NCCL;",
        List.of(RankBackend.NCCL, RankBackend.REFERENCE, RankBackend.NCCL),
        rank -> rendezvous(rank, 3, LONG));
    assertEquals(List.of(), leftovers());
  }

  @Test
  void backendOfAnEarlierRunIsIgnored() throws Exception {
    Token old = Token.random();
    files(1, 2).write(new RoundDirectory.Announcement(old, Token.NONE, RankBackend.REFERENCE));
    FutureTask<UniqueId> zero =
        RankThreads.start(
            () -> rendezvous(0, 2, LONG).exchange(RankThreads::newId, RankBackend.NCCL));
    awaitFile(files(0, 2).rankFile(0));
    Thread.sleep(500);
    assertFalse(zero.isDone());
    assertEquals(
        rendezvous(1, 2, LONG).exchange(RankThreads::newId, RankBackend.NCCL),
        RankThreads.join(zero));
  }

  @Test
  void filesOfAnEarlierRunProvideNoId() throws Exception {
    UniqueId old = RankThreads.newId();
    Token[] attempts = {Token.random(), Token.random()};
    files(0, 3)
        .write(
            new RoundDirectory.Publication(
                Token.random(), old, Optional.empty(), List.of(attempts)));
    for (int rank = 1; rank < 3; rank++) {
      files(rank, 3)
          .write(
              new RoundDirectory.Announcement(attempts[rank - 1], Token.NONE, RankBackend.UNKNOWN));
    }
    List<FutureTask<UniqueId>> ranks = new ArrayList<>();
    for (int rank = 2; rank >= 0; rank--) {
      int r = rank;
      ranks.add(RankThreads.start(() -> rendezvous(r, 3, LONG).exchange(RankThreads::newId)));
      Thread.sleep(60);
      if (rank > 0) {
        assertFalse(ranks.getLast().isDone(), "no rank takes the old id");
      }
    }
    UniqueId id = RankThreads.join(ranks.getLast());
    assertNotEquals(old, id);
    for (FutureTask<UniqueId> rank : ranks) {
      assertEquals(id, RankThreads.join(rank));
    }
    assertEquals(List.of(), leftovers());
  }

  @Test
  void rankZeroIgnoresAStaleAnnouncement() throws Exception {
    files(1, 2)
        .write(
            new RoundDirectory.Announcement(Token.random(), Token.random(), RankBackend.UNKNOWN));
    FutureTask<UniqueId> zero =
        RankThreads.start(() -> rendezvous(0, 2, LONG).exchange(RankThreads::newId));
    awaitFile(files(0, 2).idFile());
    Thread.sleep(100);
    assertFalse(zero.isDone(), "rank 1 has not arrived yet");
    UniqueId got = rendezvous(1, 2, LONG).exchange(RankThreads::newId);
    assertEquals(RankThreads.join(zero), got);
  }

  @Test
  void restartedRankIsAnswered() throws Exception {
    FutureTask<UniqueId> zero =
        RankThreads.start(() -> rendezvous(0, 2, LONG).exchange(RankThreads::newId));
    for (int crash = 0; crash < 5; crash++) {
      files(1, 2)
          .write(new RoundDirectory.Announcement(Token.random(), Token.NONE, RankBackend.UNKNOWN));
      Thread.sleep(20);
    }
    assertEquals(
        rendezvous(1, 2, LONG).exchange(RankThreads::newId).toHex(),
        RankThreads.join(zero).toHex());
  }

  @Test
  void sweptFilesAreWrittenAgain() throws Exception {
    FutureTask<UniqueId> one =
        RankThreads.start(() -> rendezvous(1, 2, LONG).exchange(RankThreads::newId));
    // A sweep makes at most one write fail. After five in a row the rank would give up.
    Deadline deadline = Deadline.after(LONG);
    for (int sweep = 0; sweep < 4; sweep++) {
      while (leftovers().isEmpty()) {
        assertFalse(deadline.passed(), "no file was written");
      }
      files(0, 2).sweep();
    }
    UniqueId id = rendezvous(0, 2, LONG).exchange(RankThreads::newId);
    assertEquals(id, RankThreads.join(one));
  }

  @Test
  void secondProcessOfOneRankIsDetected() throws Exception {
    FutureTask<UniqueId> first =
        RankThreads.start(() -> rendezvous(1, 2, LONG).exchange(RankThreads::newId));
    awaitFile(files(1, 2).rankFile(1));
    FutureTask<UniqueId> second =
        RankThreads.start(() -> rendezvous(1, 2, LONG).exchange(RankThreads::newId));
    RendezvousException thrown = RankThreads.failure(RendezvousException.class, first);
    assertTrue(
        thrown.getMessage().contains("another process takes part as rank 1"), thrown.getMessage());
    UniqueId id = rendezvous(0, 2, LONG).exchange(RankThreads::newId);
    assertEquals(id, RankThreads.join(second));
  }

  @Test
  void secondRankZeroIsDetected() throws Exception {
    files(1, 2)
        .write(new RoundDirectory.Announcement(Token.random(), Token.NONE, RankBackend.UNKNOWN));
    FutureTask<UniqueId> first =
        RankThreads.start(() -> rendezvous(0, 2, LONG).exchange(RankThreads::newId));
    awaitFile(files(0, 2).idFile());
    files(0, 2)
        .write(
            new RoundDirectory.Publication(
                Token.random(), RankThreads.newId(), Optional.empty(), List.of(Token.random())));
    RendezvousException thrown = RankThreads.failure(RendezvousException.class, first);
    assertTrue(
        thrown.getMessage().contains("another process takes part as rank 0"), thrown.getMessage());
  }

  @Test
  void waitingRankZerosDetectEachOther() throws Exception {
    FutureTask<UniqueId> first =
        RankThreads.start(() -> rendezvous(0, 2, LONG).exchange(RankThreads::newId));
    awaitFile(files(0, 2).rankFile(0));
    FutureTask<UniqueId> second =
        RankThreads.start(() -> rendezvous(0, 2, LONG).exchange(RankThreads::newId));
    RendezvousException thrown = RankThreads.failure(RendezvousException.class, first);
    assertTrue(
        thrown.getMessage().contains("another process takes part as rank 0"), thrown.getMessage());
    UniqueId id = rendezvous(1, 2, LONG).exchange(RankThreads::newId);
    assertEquals(id, RankThreads.join(second));
    assertEquals(List.of(), leftovers());
  }

  @Test
  void damagedOrForeignFileIsNamedAtTheDeadline() throws Exception {
    RoundDirectory files = files(0, 2);
    files.write(
        new RoundDirectory.Publication(
            Token.random(), RankThreads.newId(), Optional.empty(), List.of(Token.random())));
    byte[] whole = Files.readAllBytes(files.idFile());
    byte[] flipped = whole.clone();
    flipped[RankThreads.RANDOM.nextInt(28, whole.length)] ^= 1;
    byte[] otherVersion = whole.clone();
    otherVersion[11]++;
    byte[] otherWorld = whole.clone();
    otherWorld[15] = 9;
    assertNamed(new byte[0], "is damaged: it has only 0 bytes");
    assertNamed(Arrays.copyOf(whole, 100), "is damaged: it has 100 bytes; it should have 232");
    assertNamed(new byte[1 << 20], "is damaged, or not written by nccl4j");
    assertNamed(Arrays.copyOf(whole, 5000), "is damaged: it has more than 232 bytes");
    assertNamed(flipped, "is damaged");
    assertNamed(otherVersion, "has version 3; this nccl4j writes version 2");
    assertNamed(otherWorld, "is for a world size of 9; this rank's is 2");
  }

  private void assertNamed(byte[] contents, String problem) throws Exception {
    Path file = files(0, 2).idFile();
    Files.write(file, contents);
    RendezvousException named =
        assertThrows(
            RendezvousException.class, () -> rendezvous(1, 2, SHORT).exchange(RankThreads::newId));
    assertTrue(named.getMessage().contains(file + " " + problem), named.getMessage());
    assertTrue(named.getMessage().contains("rank 0 has not published"), named.getMessage());
  }

  @Test
  void changedByteOfAFileIsRejected() throws Exception {
    RoundDirectory files = files(1, 2);
    files.write(
        new RoundDirectory.Announcement(Token.random(), Token.random(), RankBackend.UNKNOWN));
    byte[] whole = Files.readAllBytes(files.rankFile(1));
    for (int position = 0; position < whole.length; position++) {
      byte[] changed = whole.clone();
      changed[position] ^= (byte) (1 << RankThreads.RANDOM.nextInt(8));
      Files.write(files.rankFile(1), changed);
      assertTrue(files.announcement(1).isEmpty(), "byte " + position);
      assertEquals(1, files.problems().size());
    }
    Files.write(files.rankFile(1), whole);
    assertTrue(files.announcement(1).isPresent());
    assertEquals(0, files.problems().size());
  }

  @Test
  void damagedFileIsReplacedByItsOwner() throws Exception {
    Files.writeString(files(0, 2).idFile(), "left by a power cut");
    Files.writeString(files(1, 2).rankFile(1), "likewise");
    FutureTask<UniqueId> one =
        RankThreads.start(() -> rendezvous(1, 2, LONG).exchange(RankThreads::newId));
    Thread.sleep(100);
    UniqueId id = rendezvous(0, 2, LONG).exchange(RankThreads::newId);
    assertEquals(id, RankThreads.join(one));
    assertEquals(List.of(), leftovers());
  }

  @Test
  void pipesAndLinksAreNotOpened() throws Exception {
    Path file = files(0, 2).idFile();
    assertEquals(0, new ProcessBuilder("mkfifo", file.toString()).start().waitFor());
    RendezvousException pipe =
        assertThrows(
            RendezvousException.class, () -> rendezvous(1, 2, SHORT).exchange(RankThreads::newId));
    assertTrue(pipe.getMessage().contains(file + " is not a regular file"), pipe.getMessage());
    Files.delete(file);
    Files.createSymbolicLink(file, Path.of("/dev/zero"));
    RendezvousException link =
        assertThrows(
            RendezvousException.class, () -> rendezvous(1, 2, SHORT).exchange(RankThreads::newId));
    assertTrue(link.getMessage().contains(file + " is not a regular file"), link.getMessage());
  }

  @Test
  void removedDirectoryIsAnError() throws Exception {
    Path gone = directory.resolve("gone");
    FileRendezvous rendezvous = FileRendezvous.in(gone, RankInfo.of(1, 2).withTimeout(LONG));
    Files.delete(gone);
    RendezvousException failed =
        assertThrows(RendezvousException.class, () -> rendezvous.exchange(RankThreads::newId));
    assertTrue(failed.getMessage().contains(gone + "/"), failed.getMessage());
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1})
  void interruptEndsTheWaitAndLeavesNoFile(int rank) throws Exception {
    FutureTask<Boolean> task =
        new FutureTask<>(
            () -> {
              assertThrows(
                  RendezvousException.class,
                  () -> rendezvous(rank, 2, LONG).exchange(RankThreads::newId));
              return Thread.currentThread().isInterrupted();
            });
    Thread thread = RankThreads.startThread(task);
    Thread.sleep(RankThreads.RANDOM.nextInt(100));
    thread.interrupt();
    assertEquals(true, RankThreads.join(task));
    assertEquals(List.of(), leftovers());
  }

  @Test
  void closeEndsTheWait() throws Exception {
    FileRendezvous rendezvous = rendezvous(1, 2, LONG);
    FutureTask<UniqueId> task = RankThreads.start(() -> rendezvous.exchange(RankThreads::newId));
    awaitFile(files(1, 2).rankFile(1));
    rendezvous.close();
    RankThreads.failure(RendezvousException.class, task);
    assertEquals(List.of(), leftovers());
  }

  @Test
  void processesExchangeAnIdAfterAKilledRun() throws Exception {
    // Rank 2 of the first run never arrives; its rank 0 publishes because of a stale announcement.
    files(2, 3)
        .write(new RoundDirectory.Announcement(Token.random(), Token.NONE, RankBackend.UNKNOWN));
    List<Process> killed = List.of(launch(0, 3), launch(1, 3));
    awaitFile(files(0, 3).idFile());
    UniqueId old = files(0, 3).publication().orElseThrow().id();
    for (Process process : killed) {
      process.destroyForcibly().waitFor();
    }
    assertTrue(leftovers().size() >= 2, () -> "the killed run left its files");

    List<Process> ranks = new ArrayList<>();
    for (int rank = 2; rank >= 0; rank--) {
      ranks.add(launch(rank, 3));
    }
    List<String> ids = new ArrayList<>();
    for (Process rank : ranks) {
      assertTrue(rank.waitFor(60, TimeUnit.SECONDS), "a rank ends");
      String output = new String(rank.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
      assertEquals(0, rank.exitValue(), output);
      ids.add(output.strip().lines().toList().getLast());
    }
    assertEquals(List.of(ids.getFirst(), ids.getFirst(), ids.getFirst()), ids);
    assertNotEquals(old.toHex(), ids.getFirst());
    assertEquals(List.of(), leftovers());
  }

  private Process launch(int rank, int size) throws Exception {
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
            "" + size,
            "50000")
        .redirectErrorStream(true)
        .start();
  }

  private static String location(Class<?> type) throws Exception {
    CodeSource source = type.getProtectionDomain().getCodeSource();
    return Path.of(source.getLocation().toURI()).toString();
  }
}
