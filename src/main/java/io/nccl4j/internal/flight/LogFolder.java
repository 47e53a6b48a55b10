package io.nccl4j.internal.flight;

import io.nccl4j.internal.util.Loggers;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.channels.FileChannel;
import java.nio.file.DirectoryNotEmptyException;
import java.nio.file.DirectoryStream;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Where the logs of this host's processes are: {@code nccl4j-flight-USER} in {@code /dev/shm}, or
 * in the temporary directory if there is no room, with a folder {@code PID-RANDOM} for each
 * process. Memory, because a page of a file on a disk can be slow to write. All of it belongs to
 * this user alone.
 *
 * <p>An orderly end deletes the files. The folders of the last {@value #KEPT} processes that ended
 * otherwise stay; a process deletes older ones before it creates its first file.
 */
public final class LogFolder {
  private static final int KEPT = 32;
  // Left for others, such as NCCL's own shared memory.
  private static final long RESERVED_BYTES = 32L << 20;
  private static final Path MEMORY = Path.of("/dev/shm");
  private static final Set<PosixFilePermission> PRIVATE =
      PosixFilePermissions.fromString("rwx------");
  private static final FileAttribute<Set<PosixFilePermission>> PRIVATE_FOLDER =
      PosixFilePermissions.asFileAttribute(PRIVATE);

  // Guarded by this class.
  private static Path folder;
  private static boolean swept;
  private static int files;

  private LogFolder() {}

  /** A file and its mapping, which lasts as long as it is reachable. */
  record Mapped(Path file, MemorySegment memory) {}

  /** Returns a new file of zeros and its mapping, or null if there can be none. */
  static synchronized Mapped create(long bytes) {
    for (Path base : bases()) {
      try {
        // 0 if there is no such folder.
        if (base.getParent().toFile().getUsableSpace() > RESERVED_BYTES + bytes) {
          return create(base, bytes);
        }
      } catch (IOException | RuntimeException e) {
        Loggers.of(LogFolder.class).debug("no log of operations in {}", base, e);
      }
    }
    return null;
  }

  private static Mapped create(Path base, long bytes) throws IOException {
    if (folder == null || !base.equals(folder.getParent())) {
      makePrivate(base);
      if (!swept) {
        swept = true;
        sweep(base);
      }
      folder = Files.createTempDirectory(base, ProcessHandle.current().pid() + "-", PRIVATE_FOLDER);
    }
    Path file = folder.resolve("log-" + ++files);
    try {
      // Allocates all pages now: a page that is unavailable later would fail the program's call.
      Files.write(file, new byte[(int) bytes], StandardOpenOption.CREATE_NEW);
      try (FileChannel channel =
          FileChannel.open(file, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
        return new Mapped(
            file, channel.map(FileChannel.MapMode.READ_WRITE, 0, bytes, Arena.ofAuto()));
      }
    } catch (IOException | RuntimeException e) {
      delete(file);
      throw e;
    }
  }

  /** Returns the folders in which processes have theirs, the preferred one first. */
  private static List<Path> bases() {
    String name = "nccl4j-flight-" + user();
    return List.of(
        MEMORY.resolve(name), Path.of(System.getProperty("java.io.tmpdir")).resolve(name));
  }

  private static Object user() {
    try {
      return Files.getAttribute(Path.of("/proc/self"), "unix:uid");
    } catch (IOException | RuntimeException e) {
      return System.getProperty("user.name");
    }
  }

  /** Creates the folder, or throws if it exists and another user can use it. */
  private static void makePrivate(Path base) throws IOException {
    try {
      Files.createDirectory(base, PRIVATE_FOLDER);
    } catch (FileAlreadyExistsException e) {
      Map<String, Object> found =
          Files.readAttributes(base, "unix:uid,isDirectory,permissions", LinkOption.NOFOLLOW_LINKS);
      if (!found.get("isDirectory").equals(true)
          || !found.get("uid").equals(user())
          || !found.get("permissions").equals(PRIVATE)) {
        throw new IOException(base + " is not a private folder of this user", e);
      }
    }
  }

  private static void sweep(Path base) throws IOException {
    List<Path> ended = new ArrayList<>();
    try (DirectoryStream<Path> folders = Files.newDirectoryStream(base)) {
      for (Path each : folders) {
        if (!running(each)) {
          ended.add(each);
        }
      }
    }
    ended.sort(Comparator.comparingLong((Path each) -> each.toFile().lastModified()).reversed());
    for (Path each : ended.stream().skip(KEPT).toList()) {
      try (DirectoryStream<Path> logs = Files.newDirectoryStream(each)) {
        for (Path log : logs) {
          Files.deleteIfExists(log);
        }
      } catch (NoSuchFileException e) {
        // Another process deletes it, too.
        continue;
      }
      Files.deleteIfExists(each);
    }
  }

  /** Returns whether a folder's process is running; false for what is not such a folder. */
  private static boolean running(Path each) {
    String name = each.getFileName().toString();
    try {
      long pid = Long.parseLong(name.substring(0, Math.max(0, name.indexOf('-'))));
      return ProcessHandle.of(pid).isPresent();
    } catch (NumberFormatException e) {
      return false;
    }
  }

  /** Deletes a file, and this process's folder if it was the last one. */
  static synchronized void delete(Path file) {
    try {
      Files.deleteIfExists(file);
      Files.deleteIfExists(file.getParent());
      if (file.getParent().equals(folder)) {
        folder = null;
      }
    } catch (DirectoryNotEmptyException e) {
      // There are more files.
    } catch (IOException e) {
      Loggers.of(LogFolder.class).warn("{} cannot be deleted", file, e);
    }
  }

  /** Returns the logs of all processes of this user on this host, running or not. */
  public static List<Path> logsOfThisHost() throws IOException {
    List<Path> logs = new ArrayList<>();
    for (Path base : bases()) {
      if (Files.isDirectory(base)) {
        try (DirectoryStream<Path> folders = Files.newDirectoryStream(base)) {
          for (Path each : folders) {
            addLogs(each, logs);
          }
        }
      }
    }
    return logs;
  }

  private static void addLogs(Path folder, List<Path> logs) throws IOException {
    try (DirectoryStream<Path> files = Files.newDirectoryStream(folder, "log-*")) {
      files.forEach(logs::add);
    } catch (NoSuchFileException e) {
      // The process has ended in the meantime.
    }
  }
}
