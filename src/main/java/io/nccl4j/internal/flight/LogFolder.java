package io.nccl4j.internal.flight;

import io.nccl4j.internal.util.Loggers;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.file.DirectoryStream;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Where the logs of this host's processes are: {@code /dev/shm/nccl4j-flight-USER}, with a folder
 * {@code PID-RANDOM} for each process. Never on a disk or a network file system, which could delay
 * the program's calls. All of it belongs to this user alone.
 *
 * <p>A process holds a lock in its folder until it ends: containers that share {@code /dev/shm}
 * need not see each other's process numbers, and each may have a process 1.
 *
 * <p>An orderly end deletes the files. The folders of the last {@value #KEPT} processes that ended
 * otherwise stay, as long as there is room for the logs of others.
 */
public final class LogFolder {
  private static final int KEPT = 32;
  // Left for others, such as NCCL's own shared memory.
  private static final long RESERVED_BYTES = 32L << 20;
  private static final Path MEMORY = Path.of("/dev/shm");
  private static final String FOLDERS = "[0-9]*-[0-9]*";
  private static final String LOGS = "log-*";
  private static final String LOCK = "lock";
  private static final String UNLOCKED = "new-";
  // A property for each folder of this process: a class loader that opened and closed the lock of
  // another one would release it, since a lock belongs to the process.
  private static final String OPEN = "io.nccl4j.flight.open.";
  private static final Set<PosixFilePermission> PRIVATE =
      PosixFilePermissions.fromString("rwx------");
  private static final FileAttribute<Set<PosixFilePermission>> PRIVATE_FOLDER =
      PosixFilePermissions.asFileAttribute(PRIVATE);

  // Guarded by this class. The folder, while this process has a log, and its lock.
  private static Path folder;
  private static FileChannel lock;
  private static int files;

  private LogFolder() {}

  /** A file and its mapping, which lasts as long as it is reachable. */
  record Mapped(Path file, MemorySegment memory) {}

  /** Returns a new file of zeros and its mapping, or null if there can be none. */
  static synchronized Mapped create(long bytes) {
    try {
      Path base = base();
      if (folder == null || !hasRoom(bytes)) {
        makePrivate(base);
        sweep(base, bytes);
      }
      if (!hasRoom(bytes)) {
        throw new IOException(
            "%s would have less than %d MiB left".formatted(MEMORY, RESERVED_BYTES >> 20));
      }
      if (folder == null) {
        openFolder(base);
      }
      return map(bytes);
    } catch (IOException | RuntimeException e) {
      Loggers.of(LogFolder.class)
          .info("the records of operations are not in a file, and would not survive a crash", e);
      return null;
    }
  }

  private static boolean hasRoom(long bytes) {
    // 0 if there is no such folder.
    return MEMORY.toFile().getUsableSpace() > RESERVED_BYTES + bytes;
  }

  private static void openFolder(Path base) throws IOException {
    Path created =
        Files.createTempDirectory(
            base, UNLOCKED + ProcessHandle.current().pid() + "-", PRIVATE_FOLDER);
    Path opened = base.resolve(created.getFileName().toString().substring(UNLOCKED.length()));
    Path file = created.resolve(LOCK);
    FileChannel held = null;
    try {
      held = FileChannel.open(file, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE);
      held.lock();
      System.setProperty(OPEN + opened, "");
      // Only now is it a process's folder: others delete those that are not locked.
      Files.move(created, opened, StandardCopyOption.ATOMIC_MOVE);
    } catch (IOException | RuntimeException e) {
      try {
        release(held, opened);
        deleteFolder(created);
      } catch (IOException more) {
        e.addSuppressed(more);
      }
      throw e;
    }
    lock = held;
    folder = opened;
  }

  private static void release(FileChannel held, Path opened) throws IOException {
    if (held != null) {
      held.close();
    }
    System.clearProperty(OPEN + opened);
  }

  private static Mapped map(long bytes) throws IOException {
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

  private static Path base() throws IOException {
    return MEMORY.resolve("nccl4j-flight-" + user());
  }

  private static Object user() throws IOException {
    return Files.getAttribute(Path.of("/proc/self"), "unix:uid");
  }

  /** Creates the folder, or throws if it exists and another user can use it. */
  private static void makePrivate(Path base) throws IOException {
    try {
      Files.createDirectory(base, PRIVATE_FOLDER);
    } catch (FileAlreadyExistsException e) {
      checkPrivate(base);
    }
  }

  private static void checkPrivate(Path base) throws IOException {
    Map<String, Object> found =
        Files.readAttributes(base, "unix:uid,isDirectory,permissions", LinkOption.NOFOLLOW_LINKS);
    if (!found.get("isDirectory").equals(true)
        || !found.get("uid").equals(user())
        || !found.get("permissions").equals(PRIVATE)) {
      throw new IOException(base + " is not a private folder of this user");
    }
  }

  /** Deletes the oldest folders of processes that have ended: too many, or until there is room. */
  static void sweep(Path base, long bytes) throws IOException {
    Map<Path, Long> times = new HashMap<>();
    for (Path each : list(base, FOLDERS)) {
      if (!running(each)) {
        times.put(each, each.toFile().lastModified());
      }
    }
    List<Path> oldest =
        times.entrySet().stream()
            .sorted(Map.Entry.comparingByValue())
            .map(Map.Entry::getKey)
            .toList();
    int surplus = oldest.size() - KEPT;
    for (int i = 0; i < oldest.size() && (i < surplus || !hasRoom(bytes)); i++) {
      try {
        deleteFolder(oldest.get(i));
      } catch (IOException e) {
        Loggers.of(LogFolder.class).warn("{} cannot be deleted", oldest.get(i), e);
      }
    }
  }

  /** Deletes a process's folder; another process may be doing the same. */
  private static void deleteFolder(Path each) throws IOException {
    for (Path file : list(each, "*")) {
      Files.deleteIfExists(file);
    }
    Files.deleteIfExists(each);
  }

  /** Returns what a folder has; nothing if it has just been deleted, or is a link. */
  private static List<Path> list(Path each, String pattern) throws IOException {
    List<Path> found = new ArrayList<>();
    if (Files.isDirectory(each, LinkOption.NOFOLLOW_LINKS)) {
      try (DirectoryStream<Path> content = Files.newDirectoryStream(each, pattern)) {
        content.forEach(found::add);
      } catch (NoSuchFileException | NotDirectoryException e) {
        return List.of();
      }
    }
    return found;
  }

  /** Returns whether the process of a log is running. */
  public static boolean runs(Path log) {
    return running(log.getParent());
  }

  private static synchronized boolean running(Path each) {
    if (System.getProperty(OPEN + each) != null) {
      return true; // of this process, perhaps of another class loader
    }
    try (FileChannel channel = FileChannel.open(each.resolve(LOCK), StandardOpenOption.WRITE);
        FileLock free = channel.tryLock()) {
      return free == null;
    } catch (IOException e) {
      return false; // deleted by its process, or not a process's folder
    }
  }

  /** Deletes a file, and this process's folder if it was the last one. */
  static synchronized void delete(Path file) {
    try {
      Files.deleteIfExists(file);
      if (folder != null && list(folder, LOGS).isEmpty()) {
        Path unused = folder;
        folder = null;
        release(lock, unused);
        deleteFolder(unused);
      }
    } catch (IOException e) {
      Loggers.of(LogFolder.class).warn("{} cannot be deleted", file, e);
    }
  }

  /**
   * Returns the logs of all processes of this user on this host, running or not.
   *
   * @throws IOException if they cannot be listed, or another user may have written them
   */
  public static List<Path> logsOfThisHost() throws IOException {
    Path base = base();
    return Files.exists(base, LinkOption.NOFOLLOW_LINKS) ? logsIn(base) : List.of();
  }

  static List<Path> logsIn(Path base) throws IOException {
    checkPrivate(base);
    List<Path> logs = new ArrayList<>();
    for (Path each : list(base, FOLDERS)) {
      logs.addAll(list(each, LOGS));
    }
    return logs;
  }
}
