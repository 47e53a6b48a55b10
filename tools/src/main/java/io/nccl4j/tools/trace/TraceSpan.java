package io.nccl4j.tools.trace;

import io.nccl4j.Operation;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * Something that lasted. Times are nanoseconds since 1970.
 *
 * @param source whose recording has it
 * @param rank whose it is, counted in the communicator from which all others were split; -1 if it
 *     is nobody's in particular
 * @param lane where it is drawn
 * @param name what it is
 * @param called when it was enqueued
 * @param begun when it began to run
 * @param ended when it was over
 * @param operation what it moved, or null where it moved nothing
 * @param error why it was not finished, or null
 */
record TraceSpan(
    Source source,
    int rank,
    Lane lane,
    String name,
    long called,
    long begun,
    long ended,
    Moved operation,
    String error) {
  private static final double NANOS_PER_SECOND = 1e9;
  private static final Set<String> SYNCHRONIZING =
      Stream.of(
              Operation.ALL_REDUCE,
              Operation.ALL_GATHER,
              Operation.REDUCE_SCATTER,
              Operation.ALL_TO_ALL)
          .map(Operation::method)
          .collect(Collectors.toSet());

  /**
   * A row of the timeline.
   *
   * @param stream the stream's number in its process, or 0 for a thread
   * @param label what it is called
   */
  record Lane(long stream, String label) {}

  /**
   * What an operation of a communicator moved.
   *
   * @param communicator the same on every rank
   * @param sequence its number, the same on every rank; 0 if it was refused, and has none
   * @param rank the rank in that communicator
   * @param ranks how many ranks it has
   * @param peer the root or the peer, or -1
   * @param group what it has in common with what was launched together with it, or 0
   * @param type of its elements
   * @param reduction how they are combined, or null
   * @param bytes its size, as bandwidths count it
   */
  record Moved(
      String communicator,
      long sequence,
      int rank,
      int ranks,
      int peer,
      long group,
      String type,
      String reduction,
      long bytes) {

    /** Returns whether no other rank has anything that belongs to it. */
    boolean refused() {
      return sequence == 0;
    }

    Moved in(String name) {
      return new Moved(name, sequence, rank, ranks, peer, group, type, reduction, bytes);
    }
  }

  /** Returns its bus bandwidth in bytes per second; 0 if it failed, or took no time. */
  double busBandwidth() {
    return error != null || ended <= begun
        ? 0
        : operation.bytes()
            * BusBandwidth.factor(name, operation.ranks())
            / ((ended - begun) / NANOS_PER_SECOND);
  }

  /** Returns whether no rank can have finished it before all had come. */
  boolean synchronizes() {
    return operation != null && error == null && SYNCHRONIZING.contains(name);
  }

  TraceSpan later(long nanos) {
    return new TraceSpan(
        source, rank, lane, name, called + nanos, begun + nanos, ended + nanos, operation, error);
  }

  TraceSpan begunAt(long nanos) {
    return new TraceSpan(
        source, rank, lane, name, called, nanos, Math.max(nanos, ended), operation, error);
  }

  TraceSpan moving(Moved what) {
    return new TraceSpan(source, rank, lane, name, called, begun, ended, what, error);
  }
}
