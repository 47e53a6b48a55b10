package io.nccl4j.tools.flight;

import io.nccl4j.internal.flight.Dump;
import io.nccl4j.internal.flight.LogFolder;
import io.nccl4j.internal.flight.OperationLog;
import io.nccl4j.tools.cli.JsonTree;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** Reads the logs of ranks. */
final class LogFiles {
  private LogFiles() {}

  /**
   * Returns the dumps in folders and, of other ranks of the same communicators, the files of this
   * host's processes; without folders, all of these files. The logs are grouped by communicator.
   *
   * @throws IOException if there are none, or one cannot be read
   */
  static Map<String, Map<Integer, RankLog>> read(List<Path> folders) throws IOException {
    Map<String, Map<Integer, RankLog>> logs = new LinkedHashMap<>();
    for (Path folder : folders) {
      try (Stream<Path> files = Files.list(folder)) {
        for (Path file : files.filter(LogFiles::isDump).sorted().toList()) {
          add(logs, RankLog.of(JsonTree.parse(Files.readString(file)), file.toString(), ""));
        }
      }
    }
    Set<String> dumped = Set.copyOf(logs.keySet());
    for (Path file : LogFolder.logsOfThisHost()) {
      RankLog log = ofProcess(file);
      if (log != null && (folders.isEmpty() || dumped.contains(log.communicator()))) {
        add(logs, log);
      }
    }
    if (logs.isEmpty()) {
      throw new IOException(
          folders.isEmpty()
              ? "no process of this user on this host has a communicator, or has crashed with one"
              : "no dump of nccl4j's flight recorder is in "
                  + folders.stream().map(Path::toString).collect(Collectors.joining(", ")));
    }
    return logs;
  }

  private static void add(Map<String, Map<Integer, RankLog>> logs, RankLog log) {
    logs.computeIfAbsent(log.communicator(), c -> new TreeMap<>()).putIfAbsent(log.rank(), log);
  }

  private static boolean isDump(Path file) {
    return file.getFileName().toString().matches(".*_rank_\\d+\\.json");
  }

  /** Returns the log of a file of a process; null if it has just been deleted. */
  private static RankLog ofProcess(Path file) throws IOException {
    try {
      Map<String, Object> dump = Dump.of(OperationLog.open(file));
      RankLog log = RankLog.of(dump, file.toString(), "");
      // In a container its number may be that of another process.
      boolean runs = ProcessHandle.of(Long.parseLong(log.process())).isPresent();
      return RankLog.of(dump, file.toString(), runs ? "running" : "has ended");
    } catch (IOException | NumberFormatException e) {
      if (Files.exists(file)) {
        throw new IOException(file + " cannot be read: " + e.getMessage(), e);
      }
      return null;
    }
  }
}
