package io.nccl4j.tools.flight;

import io.nccl4j.internal.flight.Dump;
import io.nccl4j.internal.flight.LogFolder;
import io.nccl4j.internal.flight.OperationLog;
import io.nccl4j.tools.cli.JsonTree;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.BinaryOperator;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** Reads the logs of ranks. A file that cannot be read does not hide the others. */
final class LogFiles {
  private static final long MAX_BYTES = 256L << 20;

  private final Map<String, Map<Integer, RankLog>> logs = new LinkedHashMap<>();
  private final List<String> unread = new ArrayList<>();
  private final List<Map<String, Object>> undumped = new ArrayList<>();

  private LogFiles() {}

  /**
   * Reads the dumps in folders and, of other ranks of the same communicators, the files of this
   * host's processes; without folders, all of these files.
   *
   * @throws IOException if there are none
   */
  static LogFiles read(List<Path> folders) throws IOException {
    LogFiles files = new LogFiles();
    for (Path folder : folders) {
      files.addDumps(folder);
    }
    files.addProcesses(folders.isEmpty());
    if (files.logs.isEmpty()) {
      String where = folders.stream().map(Path::toString).collect(Collectors.joining(", "));
      throw new IOException(
          (folders.isEmpty()
                  ? "no process of this user on this host has a communicator, or has crashed with one"
                  : "no dump of nccl4j's flight recorder is in " + where)
              + files.unread.stream().map("; "::concat).collect(Collectors.joining()));
    }
    return files;
  }

  /** Returns the logs by rank, for each communicator. */
  Map<String, Map<Integer, RankLog>> logs() {
    return logs;
  }

  /** Returns the files that cannot be read, each with the reason. */
  List<String> unread() {
    return unread;
  }

  /** Returns dumps of the ranks that have none in the folders. */
  List<Map<String, Object>> undumped() {
    return undumped;
  }

  private void addDumps(Path folder) throws IOException {
    if (!Files.isDirectory(folder)) {
      throw new IOException("'" + folder + "' is not a folder");
    }
    try (Stream<Path> files = Files.list(folder)) {
      for (Path file : files.filter(LogFiles::isDump).sorted().toList()) {
        try {
          RankLog log = RankLog.of(JsonTree.parse(content(file)), false);
          // A rank may have dumps in several folders.
          add(log, (one, other) -> other.asOf() > one.asOf() ? other : one);
        } catch (IOException e) {
          unread.add(file + " is not read: " + e.getMessage());
        }
      }
    }
  }

  private static boolean isDump(Path file) {
    return file.getFileName().toString().matches(".*_rank_\\d+\\.json");
  }

  /** Returns the content of a file, which may be anything that another user can create. */
  private static String content(Path file) throws IOException {
    if (!Files.isRegularFile(file, LinkOption.NOFOLLOW_LINKS)) {
      throw new IOException("it is not a regular file");
    }
    if (!Files.isReadable(file)) {
      throw new IOException("this user may not read it");
    }
    if (Files.size(file) > MAX_BYTES) {
      throw new IOException("it is larger than %d MiB".formatted(MAX_BYTES >> 20));
    }
    return new String(Files.readAllBytes(file), StandardCharsets.UTF_8);
  }

  private void addProcesses(boolean all) {
    try {
      for (Path file : LogFolder.logsOfThisHost()) {
        addProcess(file, all);
      }
    } catch (IOException e) {
      unread.add("the files of this host's processes are not read: " + e.getMessage());
    }
  }

  private void addProcess(Path file, boolean all) {
    // What cannot be read at all may be of any communicator, or of another version of nccl4j.
    boolean wanted = all;
    try {
      // First: a process that ends now may have called more than was read.
      boolean ended = !LogFolder.runs(file);
      Map<String, Object> dump = Dump.of(OperationLog.open(file));
      Map<?, ?> about = (Map<?, ?>) dump.get("nccl4j");
      Map<Integer, RankLog> dumped = logs.get(about.get("communicator"));
      wanted |= dumped != null;
      if (!wanted) {
        return;
      }
      RankLog log = RankLog.of(dump, ended);
      if (dumped == null || !dumped.containsKey(log.rank())) {
        add(log, (one, _) -> one);
        undumped.add(dump);
      }
    } catch (IOException | NumberFormatException e) {
      // It may have been deleted in the meantime.
      if (wanted && Files.exists(file)) {
        unread.add(file + " is not read: " + e.getMessage());
      }
    }
  }

  private void add(RankLog log, BinaryOperator<RankLog> choice) {
    logs.computeIfAbsent(log.communicator(), c -> new TreeMap<>()).merge(log.rank(), log, choice);
  }
}
