package io.nccl4j;

import io.nccl4j.internal.flight.Dump;
import io.nccl4j.internal.flight.OperationLog;
import io.nccl4j.internal.util.Arguments;
import io.nccl4j.internal.util.Interrupts;
import io.nccl4j.internal.util.LibraryVersion;
import io.nccl4j.internal.util.Loggers;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import org.jspecify.annotations.NullMarked;
import org.jspecify.annotations.Nullable;

/**
 * Keeps the last operations of each communicator, to find the reason when ranks wait for each
 * other. It is always on and has nothing to do with the JDK's Flight Recorder.
 *
 * <p>Each rank records its last 2,000 operations: name, numbers, count, type, operator, root or
 * peer, and when it was called and completed. The records are in a file in memory that survives a
 * crash of the process. {@code nccl4j flight} reads the records of all ranks and names the rank
 * that is behind or has called something else.
 *
 * <p>If the environment variable {@code NCCL4J_FLIGHT_DIR} or the system property {@code
 * io.nccl4j.flight.dir} names a folder, the records are written there when an operation of a
 * communicator fails or a wait for it times out. {@link #dump} writes them at any time.
 */
@NullMarked
public final class FlightRecorder {
  private static final int RECORDS = 2000;
  private static final int MAX_RECORDS = 100_000;
  // Communicators that were aborted, of which the records are kept.
  private static final int KEPT = 8;
  private static final Duration WRITE_TIMEOUT = Duration.ofSeconds(5);
  private static final long REPEAT_NANOS = Duration.ofSeconds(10).toNanos();
  private static final int MAX_NAME = 200;
  // The file names of dumps contain it, and each split or shrink makes it longer.
  private static final int MAX_COMMUNICATOR = 100;
  // Positions in the header's list of operators.
  private static final int CREATED = 5;
  private static final int NO_OPERATOR = 6;

  private static final Set<OperationLog> OPEN = ConcurrentHashMap.newKeySet();
  private static final Deque<OperationLog> ABORTED = new ArrayDeque<>();

  // When all logs were last written after a failure; guarded by this class.
  private static long writtenAt = System.nanoTime() - REPEAT_NANOS;

  private FlightRecorder() {}

  /** A setting: a system property, or an environment variable. */
  private record Setting(String name, @Nullable String value) {
    static Setting of(String property, String variable) {
      String value = System.getProperty(property);
      String text = value != null ? value : System.getenv(variable);
      return new Setting(
          value != null ? property : variable,
          text == null || text.isBlank() ? null : text.strip());
    }

    IllegalArgumentException invalid(String rule) {
      return new IllegalArgumentException(name + " is '" + value + "'; it must be " + rule);
    }
  }

  /** Throws if a setting is invalid. Called before a communicator is connected. */
  static void checkSettings() {
    records();
    frames();
  }

  /**
   * Writes the records of all ranks of this process, of open communicators and of the last that
   * were aborted: for each rank {@code nccl4j_COMMUNICATOR_rank_RANK}, which PyTorch's {@code
   * torchfrtrace} reads, and {@code COMMUNICATOR_rank_RANK.json} with the same content, which
   * {@code nccl4j flight} reads. Any thread may call it at any time.
   *
   * @param folder the folder, which is created if it does not exist; ranks of other processes may
   *     write to it, too. Existing files of the same ranks are replaced
   * @return the files for {@code torchfrtrace}
   * @throws IOException if a file cannot be written; the files of other ranks are written
   */
  public static List<Path> dump(Path folder) throws IOException {
    Objects.requireNonNull(folder, "folder");
    return write(logs(), folder);
  }

  private static List<OperationLog> logs() {
    List<OperationLog> logs = new ArrayList<>(OPEN);
    synchronized (ABORTED) {
      logs.addAll(ABORTED);
    }
    return logs;
  }

  private static List<Path> write(List<OperationLog> logs, Path folder) throws IOException {
    Files.createDirectories(folder);
    List<Path> files = new ArrayList<>();
    IOException failed = null;
    for (OperationLog log : logs) {
      try {
        files.add(Dump.write(Dump.of(log), folder));
      } catch (IOException e) {
        if (failed != null) {
          e.addSuppressed(failed);
        }
        failed = e;
      }
    }
    if (failed != null) {
      throw failed;
    }
    return files;
  }

  /**
   * Creates the log of a rank of a connected communicator; returns null if none is wanted.
   *
   * @param communicator the identity of the communicator, the same on all ranks
   * @param name its name, or an empty string
   * @param backend the name of the backend
   * @param device the number of the device
   */
  static @Nullable OperationLog open(
      String communicator, String name, int rank, int size, String backend, int device) {
    int records = records();
    if (records == 0) {
      return null;
    }
    String label = name.replaceAll("\\R", " ");
    Map<String, String> about = new LinkedHashMap<>();
    about.put("communicator", shortened(communicator));
    about.put("name", label.substring(0, Math.min(label.length(), MAX_NAME)));
    about.put("rank", Integer.toString(rank));
    about.put("size", Integer.toString(size));
    about.put("device", Integer.toString(device));
    about.put("backend", backend);
    about.put("version", LibraryVersion.current());
    about.put("host", host());
    about.put("process", Long.toString(ProcessHandle.current().pid()));
    about.put("operations", names(Operation.values()));
    about.put("types", names(DataType.values()));
    about.put("operators", "sum,prod,max,min,avg,premulsum,none");
    OperationLog log = OperationLog.create(about, records, frames());
    OPEN.add(log);
    return log;
  }

  /** Returns the identity, of which the end is replaced by its hash if it is long. */
  private static String shortened(String communicator) {
    return communicator.length() <= MAX_COMMUNICATOR
        ? communicator
        : communicator.substring(0, MAX_COMMUNICATOR - 2 * Integer.BYTES - 1)
            + "-%08x".formatted(communicator.hashCode());
  }

  private static int records() {
    Setting setting = Setting.of("io.nccl4j.flight.records", "NCCL4J_FLIGHT_RECORDS");
    if (setting.value == null) {
      return RECORDS;
    }
    if (!setting.value.matches("\\d{1,6}") || Integer.parseInt(setting.value) > MAX_RECORDS) {
      throw setting.invalid("a number from 0 to " + MAX_RECORDS);
    }
    return Integer.parseInt(setting.value);
  }

  private static boolean frames() {
    Setting setting = Setting.of("io.nccl4j.flight.frames", "NCCL4J_FLIGHT_FRAMES");
    if (setting.value != null && !setting.value.matches("[01]")) {
      throw setting.invalid("0 or 1");
    }
    return "1".equals(setting.value);
  }

  private static String host() {
    try {
      return Files.readString(Path.of("/proc/sys/kernel/hostname")).strip();
    } catch (IOException e) {
      return "unknown";
    }
  }

  private static String names(Enum<?>[] values) {
    return Arrays.stream(values)
        .map(value -> value.name().toLowerCase(Locale.ROOT))
        .collect(Collectors.joining(","));
  }

  /**
   * Returns the kind of a call in the lists of the header.
   *
   * @param operator the operator's code, or a negative number for none
   */
  @SuppressWarnings("EnumOrdinal") // The lists have this order.
  static int kind(Operation operation, DataType type, int operator) {
    return OperationLog.kind(
        operation.ordinal(),
        type.ordinal(),
        operator < 0 ? NO_OPERATOR : Math.min(operator, CREATED));
  }

  /** Ends the log of a communicator that was closed. */
  static void closed(OperationLog log) {
    OPEN.remove(log);
    log.deleteFile();
  }

  /** Keeps the log of a communicator that was aborted, instead of the oldest one that was. */
  static void aborted(OperationLog log) {
    OPEN.remove(log);
    synchronized (ABORTED) {
      ABORTED.add(log);
      if (ABORTED.size() > KEPT) {
        ABORTED.remove().deleteFile();
      }
    }
  }

  /**
   * Writes the logs of this process, if a folder is set: the other ranks and communicators may have
   * caused the failure. If that was done less than 10 s ago, writes this log alone.
   */
  static void failed(OperationLog log) {
    String folder = Setting.of("io.nccl4j.flight.dir", "NCCL4J_FLIGHT_DIR").value;
    if (folder == null) {
      return;
    }
    // In a thread of its own, since a network file system may hang; the failure must be thrown.
    Thread writer =
        Thread.ofPlatform().daemon().name("nccl4j-flight").start(() -> write(log, folder));
    Interrupts.defer(() -> Interrupts.awaitUninterruptibly(() -> writer.join(WRITE_TIMEOUT)));
  }

  private static void write(OperationLog log, String folder) {
    try {
      if (due()) {
        List<Path> files = write(logs(), Arguments.path(folder, "NCCL4J_FLIGHT_DIR"));
        Loggers.of(FlightRecorder.class)
            .warn("the last operations of {} ranks were written to {}", files.size(), folder);
      } else {
        write(List.of(log), Path.of(folder));
      }
    } catch (IOException | RuntimeException e) {
      Loggers.of(FlightRecorder.class)
          .warn("the last operations cannot be written to {}", folder, e);
    }
  }

  private static synchronized boolean due() {
    long now = System.nanoTime();
    boolean due = now - writtenAt >= REPEAT_NANOS;
    if (due) {
      writtenAt = now;
    }
    return due;
  }
}
