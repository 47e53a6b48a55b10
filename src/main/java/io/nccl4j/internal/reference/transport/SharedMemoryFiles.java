package io.nccl4j.internal.reference.transport;

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
import org.apache.logging.log4j.LogManager;

/**
 * The names of shared-memory files, and the deletion of those that a killed process has left.
 *
 * <p>A name lasts for milliseconds, from the making of the file until the other process has mapped
 * it. If the maker and that process are killed in between, the file stays. So a process deletes
 * such files before it makes its first one, and again when a communicator ends that has lost a
 * process.
 *
 * <p>A name says who made the file: {@code nccl4j-SYSTEM-PROCESS-START-RANDOM}. A file is deleted
 * only if all of this holds:
 *
 * <ul>
 *   <li>SYSTEM is the same as here: a fingerprint of the kernel's boot, the process-number
 *       namespace and the time namespace. Only there do PROCESS and START mean the same. So files
 *       of another container, or of another machine that shares the directory, stay.
 *   <li>The file belongs to the user of this process.
 *   <li>No process has that number, or it started at another time, or it is a zombie. If the kernel
 *       does not answer that question, or hides processes from this one, the file stays.
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
   * The process that made a file.
   *
   * @param system what the other two are valid in
   * @param process the number of the process
   * @param start when it started, in the kernel's ticks since the boot
   */
  record Maker(String system, String process, String start) {}

  /** What the kernel says of a process. */
  private record Status(char state, int threads, String start) {
    static Status of(String process) throws IOException {
      // The second field, in parentheses, is a file name of any bytes.
      String line =
          Files.readString(PROCESSES.resolve(process).resolve("stat"), StandardCharsets.ISO_8859_1);
      String[] fields = line.substring(line.lastIndexOf(')') + 2).split(" ", -1);
      return new Status(fields[0].charAt(0), Integer.parseInt(fields[17]), fields[19]);
    }

    /** Returns whether only the exit status is left. Other threads may outlive the first one. */
    boolean zombie() {
      return (state == 'Z' || state == 'X') && threads <= 1;
    }
  }

  private static Maker thisProcess() {
    String process = Long.toString(ProcessHandle.current().pid());
    try {
      // Where /proc is that of another namespace, its numbers are not ours.
      if (Files.readSymbolicLink(PROCESSES.resolve("self")).toString().equals(process)) {
        return new Maker(system(), process, Status.of(process).start());
      }
    } catch (IOException | RuntimeException e) {
      LogManager.getLogger(SharedMemoryFiles.class)
          .debug("shared memory of this process cannot be told from that of others", e);
    }
    // Equal to nobody else's, so that nobody judges by the other two.
    return new Maker(fingerprint(UUID.randomUUID().toString()), process, "0");
  }

  private static String system() throws IOException {
    Path namespaces = PROCESSES.resolve("self/ns");
    Path time = namespaces.resolve("time");
    return fingerprint(
        Files.readString(PROCESSES.resolve("sys/kernel/random/boot_id"))
            + Files.readSymbolicLink(namespaces.resolve("pid"))
            // Before Linux 5.6 there is none.
            + (Files.exists(time) ? Files.readSymbolicLink(time) : ""));
  }

  private static String fingerprint(String text) {
    UUID hash = UUID.nameUUIDFromBytes(text.getBytes(StandardCharsets.UTF_8));
    return HexFormat.of().toHexDigits(hash.getMostSignificantBits());
  }

  /** Returns a path that nobody can guess. */
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

  /** Returns whether a file is one of ours by its name. */
  public static boolean hasName(Path file) {
    Path name = file.getFileName();
    return name != null && NAME.matcher(name.toString()).matches();
  }

  /** Deletes, once in a process, what others have left in the directories that are used here. */
  static void sweepOnce() {
    if (SWEPT.compareAndSet(false, true)) {
      sweep();
    }
  }

  /** Deletes what others have left in the directories that are used here. */
  public static void sweep() {
    sweep(SharedMemory.MEMORY);
    sweep(SharedMemory.temporary());
  }

  private static void sweep(Path directory) {
    // Without process 1, the kernel hides processes of others, and perhaps also of this user.
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
      // Left files take memory, but stop nobody.
      LogManager.getLogger(SharedMemoryFiles.class)
          .warn("{}: shared memory of killed processes may be left there", directory, e);
    }
  }

  /** Returns whether a file was left by a process that is known to have ended. */
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
      // The name has gone meanwhile, as it should.
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
      // It may be ending this moment. Unless that is certain, the file stays.
      return false;
    }
  }
}
