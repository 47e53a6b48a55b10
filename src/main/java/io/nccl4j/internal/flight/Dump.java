package io.nccl4j.internal.flight;

import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.stream.LongStream;

/**
 * The content of a log as PyTorch's flight recorder writes it: a tree of maps, lists, strings,
 * numbers, booleans and null, which PyTorch's {@code torchfrtrace} reads as a pickle. {@code
 * nccl4j} and some fields of the entries are additions.
 *
 * <p>Each communicator is a process group, and so is each pair of a sender and a receiver:
 * torchfrtrace expects every rank of a group in each of its operations.
 */
public final class Dump {
  // The version of the format: that of PyTorch 2.6 and later.
  private static final String VERSION = "2.10";

  private final Map<String, String> about;
  private final List<OperationLog.Entry> entries;
  private final String communicator;
  private final String label;
  private final String[] operations;
  private final String[] types;
  private final String[] operators;
  private final long rank;
  private final long size;
  // How many records newer ones have replaced.
  private final long overwritten;
  private final Map<String, Object> groups = new LinkedHashMap<>();

  private Dump(OperationLog log) {
    about = log.about();
    entries = log.entries();
    communicator = about.getOrDefault("communicator", "");
    label = about.getOrDefault("name", "");
    operations = about.getOrDefault("operations", "").split(",");
    types = about.getOrDefault("types", "").split(",");
    operators = about.getOrDefault("operators", "").split(",");
    rank = Long.parseLong(about.getOrDefault("rank", "-1"));
    size = Long.parseLong(about.getOrDefault("size", "-1"));
    overwritten = entries.isEmpty() ? 0 : Math.max(0, entries.getLast().record() - log.capacity());
  }

  /** Returns the content of a log. */
  public static Map<String, Object> of(OperationLog log) {
    return new Dump(log).tree();
  }

  /**
   * Writes a dump in both formats: {@code nccl4j_COMMUNICATOR_rank_RANK}, the pickle, and {@code
   * COMMUNICATOR_rank_RANK.json}, whose name torchfrtrace skips. Replaces existing files.
   *
   * @return the pickle
   */
  public static Path write(Map<String, Object> dump, Path folder) throws IOException {
    Map<?, ?> about = (Map<?, ?>) dump.get("nccl4j");
    String name =
        about.get("communicator").toString().replaceAll("[^A-Za-z0-9]", "-")
            + "_rank_"
            + about.get("rank");
    replace(folder.resolve(name + ".json"), Json.of(dump).getBytes(StandardCharsets.UTF_8));
    return replace(folder.resolve("nccl4j_" + name), Pickle.of(dump));
  }

  private static Path replace(Path file, byte[] content) throws IOException {
    Path temporary = file.resolveSibling(UUID.randomUUID() + ".tmp");
    try {
      // An interrupt of the thread does not end this write.
      try (OutputStream out = new FileOutputStream(temporary.toFile())) {
        out.write(content);
      }
      return Files.move(temporary, file, StandardCopyOption.ATOMIC_MOVE);
    } finally {
      // What a failure has left, such as a disk that is full.
      Files.deleteIfExists(temporary);
    }
  }

  private static Map<String, Object> map(Object... pairs) {
    Map<String, Object> map = new LinkedHashMap<>();
    for (int i = 0; i < pairs.length; i += 2) {
      map.put((String) pairs[i], pairs[i + 1]);
    }
    return map;
  }

  private Map<String, Object> tree() {
    // Also without entries, so that its rank is known.
    group(communicator, LongStream.range(0, size).boxed().toList());
    List<Map<String, Object>> list = entries.stream().map(this::entry).toList();
    Map<String, Object> own = new LinkedHashMap<>();
    for (String name : List.of("communicator", "name", "backend", "version", "host", "process")) {
      if (about.containsKey(name)) {
        own.put(name, about.get(name));
      }
    }
    own.put("rank", rank);
    own.put("size", size);
    own.put("device", Long.parseLong(about.getOrDefault("device", "-1")));
    own.put("written_ns", OperationLog.now());
    own.put("overwritten", overwritten);
    return map(
        "version", VERSION,
        "comm_lib_version", about.get("version"),
        "nccl4j", own,
        "pg_config", groups,
        "pg_status", map("0", status()),
        "entries", list,
        "nccl_comm_state", map());
  }

  private Map<String, Object> status() {
    long enqueued = 0;
    long completed = 0;
    for (OperationLog.Entry entry : entries) {
      enqueued = Math.max(enqueued, entry.collectives());
      if (entry.message() == 0 && entry.completed() != 0) {
        completed = Math.max(completed, entry.collectives());
      }
    }
    return map(
        "last_enqueued_collective", enqueued,
        // Not known.
        "last_started_collective", -1L,
        "last_completed_collective", completed);
  }

  private String group(String name, List<Long> ranks) {
    groups.putIfAbsent(name, map("name", name, "desc", label, "ranks", ranks.toString()));
    return name;
  }

  private Map<String, Object> entry(OperationLog.Entry entry) {
    String operation = name(operations, entry.kind() & 0xff);
    String type = name(types, entry.kind() >> 8 & 0xff);
    String operator = name(operators, entry.kind() >> 16 & 0xff);
    boolean message = entry.message() != 0;
    String group = communicator;
    String profilingName = "nccl:" + operation;
    if (message) {
      boolean sends = operation.equals("send");
      long from = sends ? rank : entry.peer();
      long to = sends ? entry.peer() : rank;
      group =
          from == to
              // Alone in its group, since torchfrtrace would take both for one coalesced operation.
              ? group(group + "/" + from + (sends ? "->" : "<-") + to, List.of(from))
              : group(
                  group + "/" + from + "->" + to, List.of(Math.min(from, to), Math.max(from, to)));
      // Positions among the sorted ranks of the group.
      int sender = from > to ? 1 : 0;
      int receiver = from < to ? 1 : 0;
      profilingName +=
          sends ? " %d->%d".formatted(sender, receiver) : " %d<-%d".formatted(receiver, sender);
    }
    return map(
        "frames", entry.frames().stream().map(Dump::frame).toList(),
        // torchfrtrace drops what is older than any rank's oldest record. Ranks send and receive
        // different numbers of messages, so their own numbers of records would not compare: the
        // number of collectives before this operation.
        "record_id", message ? entry.collectives() : entry.collectives() - 1,
        "pg_id", 0L,
        "process_group", List.of(group, label),
        "thread_id", Long.toString(entry.thread()),
        "collective_seq_id", message ? entry.message() : entry.collectives(),
        "p2p_seq_id", entry.message(),
        "op_id", entry.record(),
        "profiling_name", profilingName,
        "time_created_ns", entry.created(),
        "input_sizes", sizes(entry, List.of("reduce_scatter", "scatter", "all_to_all"), operation),
        "input_dtypes", List.of(type),
        "output_sizes", sizes(entry, List.of("all_gather", "gather", "all_to_all"), operation),
        "output_dtypes", List.of(type),
        "state", entry.completed() == 0 ? "scheduled" : "completed",
        "time_discovered_started_ns", null,
        "time_discovered_completed_ns", entry.completed() == 0 ? null : entry.completed(),
        "retired", entry.completed() != 0,
        "is_p2p", message,
        "count", entry.count(),
        "reduction", operator,
        "peer", (long) entry.peer(),
        "stream", entry.stream());
  }

  /** Returns one size: the count, or that for all ranks in the given operations. */
  private List<List<Long>> sizes(
      OperationLog.Entry entry, List<String> ofAllRanks, String operation) {
    return List.of(List.of(ofAllRanks.contains(operation) ? entry.count() * size : entry.count()));
  }

  private static Map<String, Object> frame(StackTraceElement frame) {
    return map(
        "name",
        frame.getClassName() + "." + frame.getMethodName(),
        "filename",
        frame.getFileName() == null ? "unknown" : frame.getFileName(),
        "line",
        (long) frame.getLineNumber());
  }

  private static String name(String[] names, int position) {
    return position < names.length ? names[position] : "unknown";
  }
}
