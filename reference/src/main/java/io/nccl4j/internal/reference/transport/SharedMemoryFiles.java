package io.nccl4j.internal.reference.transport;

import io.nccl4j.internal.util.Loggers;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.security.SecureRandom;
import java.util.HexFormat;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Names shared-memory files, and deletes those that killed processes have left.
 *
 * <p>A file name exists for milliseconds, from the creation of the file until the other process has
 * mapped it. If both processes are killed in between, the file stays. So a process deletes such
 * files before it creates its first one, and when a communicator ends that has lost a process.
 *
 * <p>The name identifies the process that created the file: {@code
 * nccl4j-SYSTEM-PROCESS-START-RANDOM}. A file is deleted only if all of these hold:
 *
 * <ul>
 *   <li>SYSTEM, a fingerprint of the kernel's boot, the PID namespace and the time namespace, is
 *       that of this process. PROCESS and START are comparable only within one system, so files of
 *       another container, or of another machine that shares the directory, stay.
 *   <li>The file belongs to the user of this process.
 *   <li>No process has the PID, or the process with the PID has another start time or is a zombie.
 *       If the kernel does not answer, or hides processes from this one, the file stays.
 * </ul>
 */
public final class SharedMemoryFiles {
  private static final Path PROCESSES = Path.of("/proc");
  private static final Pattern NAME =
      Pattern.compile("nccl4j-([0-9a-f]{16})-([0-9]{1,10})-([0-9]{1,20})-[0-9a-f]{32}");
  private static final SecureRandom RANDOM = new SecureRandom();
  private static final AtomicBoolean SWEPT = new AtomicBoolean();
  private static final Maker THIS_PROCESS = thisProcess();

  private SharedMemoryFiles() {}

  /**
   * The process that created a file.
   *
   * @param system the fingerprint of the system in which the other two are valid
   * @param process the PID
   * @param start the start time in the kernel's ticks since boot
   */
  record Maker(String system, String process, String start) {}

  /** The status of a process in {@code /proc}. */
  private record Status(char state, int threads, String start) {
    static Status of(String process) throws IOException {
      // The second field, in parentheses, is a file name, which may contain any bytes.
      String line =
          Files.readString(PROCESSES.resolve(process).resolve("stat"), StandardCharsets.ISO_8859_1);
      String[] fields = line.substring(line.lastIndexOf(')') + 2).split(" ", -1);
      return new Status(fields[0].charAt(0), Integer.parseInt(fields[17]), fields[19]);
    }

    /** Returns whether only the exit status is left; other threads may outlive the main thread. */
    boolean zombie() {
      return (state == 'Z' || state == 'X') && threads <= 1;
    }
  }

  private static Maker thisProcess() {
    String process = Long.toString(ProcessHandle.current().pid());
    try {
      // If /proc belongs to another PID namespace, its PIDs are not valid here.
      if (Files.readSymbolicLink(PROCESSES.resolve("self")).toString().equals(process)) {
        return new Maker(system(), process, Status.of(process).start());
      }
    } catch (IOException | RuntimeException e) {
      Loggers.of(SharedMemoryFiles.class)
          .debug("cannot identify this process; its abandoned shared memory stays", e);
    }
    // A unique fingerprint, so that no process compares the other two.
    return new Maker(fingerprint(UUID.randomUUID().toString()), process, "0");
  }

  private static String system() throws IOException {
    Path namespaces = PROCESSES.resolve("self/ns");
    Path time = namespaces.resolve("time");
    return fingerprint(
        Files.readString(PROCESSES.resolve("sys/kernel/random/boot_id"))
            + Files.readSymbolicLink(namespaces.resolve("pid"))
            // Absent before Linux 5.6.
            + (Files.exists(time) ? Files.readSymbolicLink(time) : ""));
  }

  private static String fingerprint(String text) {
    UUID hash = UUID.nameUUIDFromBytes(text.getBytes(StandardCharsets.UTF_8));
    return HexFormat.of().toHexDigits(hash.getMostSignificantBits());
  }

  /** Returns a path that cannot be guessed. */
  public static Path newPath(Path directory) {
    byte[] random = new byte[16];
    RANDOM.nextBytes(random);
    return directory.resolve(name(THIS_PROCESS, random)).toAbsolutePath();
  }

  public static String name(Maker maker, byte[] random) {
    return "nccl4j-%s-%s-%s-%s"
        .formatted(maker.system, maker.process, maker.start, HexFormat.of().formatHex(random));
  }

  public static Maker ofThisProcess() {
    return THIS_PROCESS;
  }

  /** Returns whether a file has a name of the form that this class creates. */
  public static boolean hasName(Path file) {
    Path name = file.getFileName();
    return name != null && NAME.matcher(name.toString()).matches();
  }

  /** Calls {@link #sweep()} once per process. */
  static void sweepOnce() {
    if (SWEPT.compareAndSet(false, true)) {
      sweep();
    }
  }

  /** Deletes abandoned files in the directories used for shared memory. */
  public static void sweep() {
    sweep(SharedMemory.MEMORY);
    sweep(SharedMemory.temporary());
  }

  private static void sweep(Path directory) {
    // If process 1 is hidden, the kernel may hide other processes too, even of this user.
    if (!Files.isDirectory(directory) || !Files.exists(PROCESSES.resolve("1"))) {
      return;
    }
    try (DirectoryStream<Path> files = Files.newDirectoryStream(directory, "nccl4j-*")) {
      for (Path file : files) {
        if (isAbandoned(file)) {
          Files.deleteIfExists(file);
        }
      }
    } catch (IOException | RuntimeException e) {
      // Abandoned files cost memory, but cause no failure.
      Loggers.of(SharedMemoryFiles.class)
          .warn("{}: cannot delete shared memory of killed processes", directory, e);
    }
  }

  /** Returns whether a file was created by a process that is known to have ended. */
  static boolean isAbandoned(Path file) throws IOException {
    Matcher name = NAME.matcher(file.getFileName().toString());
    return name.matches()
        && name.group(1).equals(THIS_PROCESS.system)
        && isOwn(file)
        && hasEnded(name.group(2), name.group(3));
  }

  private static boolean isOwn(Path file) throws IOException {
    try {
      Map<String, Object> found =
          Files.readAttributes(file, "unix:uid,isRegularFile", LinkOption.NOFOLLOW_LINKS);
      Object user = Files.getAttribute(PROCESSES.resolve("self"), "unix:uid");
      return found.get("isRegularFile").equals(true) && found.get("uid").equals(user);
    } catch (NoSuchFileException e) {
      // The file has been unlinked in the meantime.
      return false;
    }
  }

  private static boolean hasEnded(String process, String start) {
    try {
      Status status = Status.of(process);
      return !status.start().equals(start) || status.zombie();
    } catch (NoSuchFileException e) {
      return true;
    } catch (IOException e) {
      // The process may be ending. The file stays unless that is certain.
      return false;
    }
  }
}
