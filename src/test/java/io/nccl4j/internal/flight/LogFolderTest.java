package io.nccl4j.internal.flight;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Which folders of other processes stay. */
class LogFolderTest {
  // More than any device has.
  private static final long NO_ROOM = 1L << 60;

  @TempDir Path base;

  /** Creates a folder of a process that has ended, unless its lock is held. */
  private Path folder(String name, int second) throws IOException {
    Path folder = Files.createDirectory(base.resolve(name));
    Files.createFile(folder.resolve("lock"));
    Files.createFile(folder.resolve("log-1"));
    Files.setLastModifiedTime(folder, FileTime.fromMillis(second * 1000L));
    return folder;
  }

  private List<String> names() throws IOException {
    try (Stream<Path> left = Files.list(base)) {
      return left.map(each -> each.getFileName().toString()).sorted().toList();
    }
  }

  @Test
  void lastProcessesStay() throws IOException {
    // Process 1 is running here; those that wrote the folders may have been in other containers.
    for (int i = 0; i < 34; i++) {
      folder("1-" + (100 + i), i);
    }
    LogFolder.sweep(base, 0);
    assertEquals(32, names().size());
    assertEquals("1-102", names().getFirst());
  }

  /** A process's lock would be released if it opened and closed the file once more. */
  @Test
  void endedProcessesMakeRoom() throws IOException {
    folder("7-1", 1);
    Path running = folder("8-1", 1);
    Path lock = running.resolve("lock");
    String property = "io.nccl4j.flight.open." + running;
    System.setProperty(property, "");
    try (FileChannel channel = FileChannel.open(lock, StandardOpenOption.WRITE)) {
      channel.lock();
      assertTrue(LogFolder.runs(running.resolve("log-1")));
      LogFolder.sweep(base, NO_ROOM);
      assertTrue(isLocked(lock));
    } finally {
      System.clearProperty(property);
    }
    assertEquals(List.of("8-1"), names());
    assertFalse(LogFolder.runs(running.resolve("log-1")));
  }

  @Test
  void otherClassLoaderLeavesTheLock() throws Exception {
    Path log = LogFolder.create(4096).file();
    Path folder = log.getParent();
    try (URLClassLoader other =
        new URLClassLoader(
            new URL[] {LogFolder.class.getProtectionDomain().getCodeSource().getLocation()},
            ClassLoader.getPlatformClassLoader())) {
      Method runs = other.loadClass(LogFolder.class.getName()).getMethod("runs", Path.class);
      assertEquals(true, runs.invoke(null, log));
      assertTrue(isLocked(folder.resolve("lock")));
    } finally {
      LogFolder.delete(log);
    }
    // The other tests of this process may have logs.
    assertEquals(
        Files.exists(folder), System.getProperty("io.nccl4j.flight.open." + folder) != null);
  }

  private static boolean isLocked(Path lock) throws IOException {
    String inode = ":" + Files.getAttribute(lock, "unix:ino") + " ";
    return Files.readAllLines(Path.of("/proc/locks")).stream()
        .anyMatch(held -> held.contains(inode));
  }

  @Test
  void linkIsNotFollowedAndOtherFilesStay() throws IOException {
    Path elsewhere = folder("elsewhere", 1);
    Files.createSymbolicLink(base.resolve("7-1"), elsewhere);
    Files.createFile(base.resolve("note"));
    LogFolder.sweep(base, NO_ROOM);
    assertEquals(List.of("elsewhere", "note"), names());
    assertTrue(Files.exists(elsewhere.resolve("log-1")));
  }

  @Test
  void folderOfOthersIsRefused() throws IOException {
    Files.setPosixFilePermissions(base, PosixFilePermissions.fromString("rwxr-xr-x"));
    IOException refused = assertThrows(IOException.class, () -> LogFolder.logsIn(base));
    assertEquals(base + " is not a private folder of this user", refused.getMessage());
    Path link = Files.createSymbolicLink(base.resolve("link"), base);
    Files.setPosixFilePermissions(base, PosixFilePermissions.fromString("rwx------"));
    assertThrows(IOException.class, () -> LogFolder.logsIn(link));
    Path log = folder("7-1", 1).resolve("log-1");
    assertEquals(List.of(log), LogFolder.logsIn(base));
  }
}
