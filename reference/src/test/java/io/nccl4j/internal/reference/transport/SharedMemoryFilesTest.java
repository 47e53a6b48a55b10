package io.nccl4j.internal.reference.transport;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

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

/** Tests shared-memory files whose creator was killed before another process unlinked them. */
class SharedMemoryFilesTest {
  @TempDir private Path folder;

  private Set<Path> files() throws IOException {
    try (Stream<Path> files = Files.list(folder)) {
      return files.collect(Collectors.toSet());
    }
  }

  /** Starts a process that creates a link's file in the folder. */
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

  private Path file(SharedMemoryFiles.Maker maker) throws IOException {
    return Files.createFile(folder.resolve(SharedMemoryFiles.name(maker, new byte[16])));
  }

  private static SharedMemoryFiles.Maker thisProcess() {
    return SharedMemoryFiles.ofThisProcess();
  }

  /** Returns the identity of a process of this user that has ended. */
  private static SharedMemoryFiles.Maker ended() throws Exception {
    Process process = new ProcessBuilder("true").start();
    assertEquals(0, process.waitFor());
    return new SharedMemoryFiles.Maker(
        thisProcess().system(), Long.toString(process.pid()), thisProcess().start());
  }

  @Test
  void endedMakersFileIsAbandoned() throws Exception {
    assertTrue(SharedMemoryFiles.isAbandoned(file(ended())));
  }

  @Test
  void reusedProcessNumberDoesNotKeepFile() throws IOException {
    SharedMemoryFiles.Maker earlier =
        new SharedMemoryFiles.Maker(thisProcess().system(), thisProcess().process(), "17");
    assertTrue(SharedMemoryFiles.isAbandoned(file(earlier)));
  }

  @Test
  void livingMakersFileStays() throws IOException {
    assertFalse(SharedMemoryFiles.isAbandoned(file(thisProcess())));
  }

  @Test
  void fileOfAnotherBootOrNamespaceStays() throws Exception {
    SharedMemoryFiles.Maker here = ended();
    SharedMemoryFiles.Maker elsewhere =
        new SharedMemoryFiles.Maker("0123456789abcdef", here.process(), here.start());
    assertFalse(SharedMemoryFiles.isAbandoned(file(elsewhere)));
  }

  @Test
  void fileOfAnotherUserStays() throws Exception {
    Path file = file(ended());
    int user = (int) Files.getAttribute(file, "unix:uid");
    assumeTrue(user == 0, "only root can create files of other users");
    Files.setAttribute(file, "unix:uid", 12345);
    assertFalse(SharedMemoryFiles.isAbandoned(file));
  }

  @Test
  void otherFilesStay() throws Exception {
    String name = SharedMemoryFiles.name(ended(), new byte[16]);
    Path directory = Files.createDirectory(folder.resolve(name));
    assertFalse(SharedMemoryFiles.isAbandoned(directory));
    Files.delete(directory);
    assertFalse(SharedMemoryFiles.isAbandoned(directory), "missing file");
    Path link = Files.createSymbolicLink(directory, Path.of("elsewhere"));
    assertFalse(SharedMemoryFiles.isAbandoned(link));
    for (String other : new String[] {name + "0", "nccl4j-0", "other"}) {
      assertFalse(SharedMemoryFiles.isAbandoned(Files.createFile(folder.resolve(other))), other);
    }
  }

  @Test
  void zombiesFileIsAbandoned() throws Exception {
    // The child ends after exec has replaced its parent shell; sleep never reaps the child.
    Process parent =
        new ProcessBuilder(
                "sh",
                "-c",
                "me=$$; until grep -q sleep /proc/$me/comm; do :; done & echo $!; exec sleep 60")
            .start();
    try {
      String zombie = parent.inputReader().readLine();
      Path stat = Path.of("/proc", zombie, "stat");
      LinkPeer.await(() -> contains(stat, ") Z "));
      String[] fields = Files.readString(stat).split(" ", -1);
      SharedMemoryFiles.Maker maker =
          new SharedMemoryFiles.Maker(thisProcess().system(), zombie, fields[21]);
      assertTrue(SharedMemoryFiles.isAbandoned(file(maker)));
    } finally {
      kill(parent);
    }
  }

  private static boolean contains(Path file, String text) {
    try {
      return Files.readString(file).contains(text);
    } catch (IOException e) {
      throw new AssertionError(e);
    }
  }
}
