package io.nccl4j.tools.flight;

import java.io.IOException;
import java.util.Collection;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.stream.Stream;

/**
 * The last operations of one rank of a communicator. Dumps may come from other hosts and users, so
 * nothing in them is trusted: every field is checked, and texts have no control characters.
 *
 * @param worker where it runs
 * @param asOf when it was read or dumped, in nanoseconds since 1970; {@link Long#MAX_VALUE} if the
 *     process has ended, so that nothing can follow
 * @param called the number of the last collective that it has called, or 0
 * @param overwritten the number of operations that newer ones have replaced
 * @param collectives the collectives by their numbers
 * @param sends the sends by their peers and numbers
 * @param receives the receives by their peers and numbers
 */
record RankLog(
    String communicator,
    String name,
    String backend,
    int rank,
    int size,
    Worker worker,
    long asOf,
    long called,
    long overwritten,
    SortedMap<Long, Call> collectives,
    SortedMap<Integer, SortedMap<Long, Call>> sends,
    SortedMap<Integer, SortedMap<Long, Call>> receives) {
  private static final long MAX_RANKS = 1 << 20;
  private static final double NANOS_PER_SECOND = 1e9;

  /** What a process does on one device, as a rank of each of its communicators. */
  record Worker(String host, String process, long device) {}

  /**
   * An operation.
   *
   * @param number the number of the collective, or of the message among those of its peer
   * @param reduction the operator, or {@code none}
   * @param peer the root or the peer, or -1
   * @param nanos when it was called, in nanoseconds since 1970
   */
  record Call(
      String operation,
      long number,
      long count,
      String type,
      String reduction,
      long peer,
      long nanos,
      boolean completed) {
    /** Returns whether two ranks' calls belong together. */
    boolean matches(Call other) {
      return operation.equals(other.operation)
          && count == other.count
          && type.equals(other.type)
          && reduction.equals(other.reduction)
          && peer == other.peer;
    }

    @Override
    public String toString() {
      return "%s(%d %s%s%s)"
          .formatted(
              operation,
              count,
              type,
              reduction.equals("none") ? "" : ", " + reduction,
              peer < 0 ? "" : ", " + word() + " " + peer);
    }

    private String word() {
      return switch (operation) {
        case "send" -> "to";
        case "recv" -> "from";
        default -> "root";
      };
    }
  }

  /**
   * Returns the log of a dump.
   *
   * @param ended whether its process is known to have ended
   * @throws IOException if it is not a dump of nccl4j
   */
  static RankLog of(Object tree, boolean ended) throws IOException {
    Map<?, ?> dump = fields(tree);
    Map<?, ?> about = fields(dump.get("nccl4j"));
    int size = (int) number(about, "size", 1, MAX_RANKS);
    SortedMap<Long, Call> collectives = new TreeMap<>();
    SortedMap<Integer, SortedMap<Long, Call>> sends = new TreeMap<>();
    SortedMap<Integer, SortedMap<Long, Call>> receives = new TreeMap<>();
    long called = 0;
    for (Object each : list(dump, "entries")) {
      Map<?, ?> entry = fields(each);
      Call call = call(entry, size);
      long before = number(entry, "record_id", 0, Long.MAX_VALUE - 1);
      if (entry.get("is_p2p").equals(true)) {
        called = Math.max(called, before);
        (call.operation.equals("send") ? sends : receives)
            .computeIfAbsent((int) call.peer, p -> new TreeMap<>())
            .put(call.number, call);
      } else {
        called = Math.max(called, call.number);
        collectives.put(call.number, call);
      }
    }
    return new RankLog(
        text(about, "communicator"),
        text(about, "name"),
        text(about, "backend"),
        (int) number(about, "rank", 0, size - 1),
        size,
        new Worker(
            text(about, "host"),
            text(about, "process"),
            number(about, "device", -1, Integer.MAX_VALUE)),
        ended ? Long.MAX_VALUE : number(about, "written_ns", 0, Long.MAX_VALUE),
        called,
        number(about, "overwritten", 0, Long.MAX_VALUE),
        collectives,
        sends,
        receives);
  }

  private static Call call(Map<?, ?> entry, int size) throws IOException {
    List<?> types = list(entry, "input_dtypes");
    if (types.isEmpty() || !(entry.get("is_p2p") instanceof Boolean)) {
      throw invalid(types.isEmpty() ? "input_dtypes" : "is_p2p");
    }
    return new Call(
        text(entry, "profiling_name").replaceFirst("^nccl:", "").split(" ", 2)[0],
        number(entry, "collective_seq_id", 1, Long.MAX_VALUE - 1),
        number(entry, "count", 0, Long.MAX_VALUE),
        text(types.getFirst(), "input_dtypes"),
        text(entry, "reduction"),
        number(entry, "peer", -1, size - 1),
        number(entry, "time_created_ns", 0, Long.MAX_VALUE),
        text(entry, "state").equals("completed"));
  }

  private static Map<?, ?> fields(Object tree) throws IOException {
    if (tree instanceof Map<?, ?> map) {
      return map;
    }
    throw new IOException("it is not a dump of nccl4j's flight recorder");
  }

  private static List<?> list(Map<?, ?> fields, String name) throws IOException {
    if (fields.get(name) instanceof List<?> list) {
      return list;
    }
    throw invalid(name);
  }

  private static String text(Map<?, ?> fields, String name) throws IOException {
    return text(fields.get(name), name);
  }

  private static String text(Object value, String name) throws IOException {
    if (value instanceof String text) {
      return text.replaceAll("[\\p{Cc}\\p{Cf}]", "?");
    }
    throw invalid(name);
  }

  private static long number(Map<?, ?> fields, String name, long min, long max) throws IOException {
    if (fields.get(name) instanceof Long value && value >= min && value <= max) {
      return value;
    }
    throw invalid(name);
  }

  private static IOException invalid(String field) {
    return new IOException(
        "it is not a dump of this version of nccl4j's flight recorder: '"
            + field
            + "' is missing or invalid");
  }

  /**
   * Returns the number of the last collective before the first that is not completed, or -1 if no
   * collective is recorded.
   */
  long completed() {
    if (collectives.isEmpty()) {
      return called == 0 ? 0 : -1;
    }
    return collectives.values().stream()
        .filter(call -> !call.completed)
        .map(call -> call.number - 1)
        .findFirst()
        .orElse(called);
  }

  /** Returns the first collective that it has called and that has not completed. */
  Optional<Call> firstPending() {
    return pending(collectives.values().stream());
  }

  /** Returns the first operation that has not completed. */
  Optional<Call> waitsIn() {
    return pending(calls());
  }

  /** Returns all recorded operations. */
  Stream<Call> calls() {
    return Stream.of(List.of(collectives), sends.values(), receives.values())
        .flatMap(Collection::stream)
        .flatMap(calls -> calls.values().stream());
  }

  private static Optional<Call> pending(Stream<Call> calls) {
    return calls.filter(call -> !call.completed).min(Comparator.comparingLong(Call::nanos));
  }

  /** Returns whether its process has ended. */
  boolean ended() {
    return asOf == Long.MAX_VALUE;
  }

  /** Returns how long it has waited for a call, or nothing if the process has ended. */
  String waited(Call call) {
    return ended()
        ? ""
        : " for %.1f s".formatted(Math.max(0, asOf - call.nanos) / NANOS_PER_SECOND);
  }

  /** Returns its process, for messages. */
  String process() {
    return "process %s on %s%s"
        .formatted(worker.process, worker.host, ended() ? ", has ended" : "");
  }

  /** Returns the rank with its process, for messages. */
  String who() {
    return "rank %d (%s)".formatted(rank, process());
  }
}
