package io.nccl4j.tools.flight;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * The last operations of one rank of a communicator.
 *
 * @param tree the whole dump
 * @param note what is known about the process, or an empty string
 * @param collectives the collectives by their numbers
 * @param messages the sends and receives, in the order of the calls
 */
record RankLog(
    Map<?, ?> tree,
    String communicator,
    String name,
    String backend,
    int rank,
    int size,
    String host,
    String process,
    String note,
    TreeMap<Long, Call> collectives,
    List<Call> messages) {
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
   * @param source what it was read from, for the message
   * @throws IOException if it is not a dump of nccl4j
   */
  static RankLog of(Object tree, String source, String note) throws IOException {
    try {
      Map<?, ?> dump = (Map<?, ?>) tree;
      Map<?, ?> about = (Map<?, ?>) dump.get("nccl4j");
      RankLog log =
          new RankLog(
              dump,
              (String) about.get("communicator"),
              (String) about.get("name"),
              (String) about.get("backend"),
              Math.toIntExact((long) about.get("rank")),
              Math.toIntExact((long) about.get("size")),
              (String) about.get("host"),
              (String) about.get("process"),
              note,
              new TreeMap<>(),
              new ArrayList<>());
      for (Object each : (List<?>) dump.get("entries")) {
        log.add((Map<?, ?>) each);
      }
      return log;
    } catch (ClassCastException | NullPointerException | ArithmeticException e) {
      throw new IOException(source + " is not a dump of nccl4j's flight recorder", e);
    }
  }

  private void add(Map<?, ?> entry) {
    boolean message = (boolean) entry.get("is_p2p");
    String profiled = (String) entry.get("profiling_name");
    Call call =
        new Call(
            profiled.substring("nccl:".length()).split(" ", 2)[0],
            (long) entry.get("collective_seq_id"),
            (long) entry.get("count"),
            (String) ((List<?>) entry.get("input_dtypes")).getFirst(),
            (String) entry.get("reduction"),
            (long) entry.get("peer"),
            (long) entry.get("time_created_ns"),
            entry.get("state").equals("completed"));
    if (message) {
      messages.add(call);
    } else {
      collectives.put(call.number, call);
    }
  }

  /** Returns the number of the last collective that it has called, or 0. */
  long called() {
    return collectives.isEmpty() ? 0 : collectives.lastKey();
  }

  /** Returns the number of the last collective before the first that is not completed. */
  long completed() {
    return collectives.values().stream()
        .filter(call -> !call.completed)
        .map(call -> call.number - 1)
        .findFirst()
        .orElse(called());
  }

  /** Returns the messages with a peer in one direction, by their numbers. */
  TreeMap<Long, Call> messages(String operation, long peer) {
    TreeMap<Long, Call> found = new TreeMap<>();
    for (Call call : messages) {
      if (call.peer == peer && call.operation.equals(operation)) {
        found.put(call.number, call);
      }
    }
    return found;
  }

  /** Returns the rank with its process, for messages. */
  String who() {
    return "rank %d (process %s on %s%s)"
        .formatted(rank, process, host, note.isEmpty() ? "" : ", " + note);
  }
}
