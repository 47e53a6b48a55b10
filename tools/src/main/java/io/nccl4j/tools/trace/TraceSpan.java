package io.nccl4j.tools.trace;

import io.nccl4j.Operation;
import io.nccl4j.tools.cli.BusBandwidth;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * An operation or other event with a duration. Times are nanoseconds since 1970.
 *
 * @param source the recording
 * @param rank the rank in the communicator from which all others were split; -1 if it belongs to
 *     none
 * @param lane the row of the timeline
 * @param name the name of the operation or event
 * @param called when it was enqueued
 * @param begun when it began to run
 * @param ended when it ended
 * @param operation the details of a communicator's operation, or null for any other event
 * @param error why it did not complete, or null
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
   * @param label its label
   */
  record Lane(long stream, String label) {}

  /**
   * The details of an operation of a communicator.
   *
   * @param communicator its name, the same on every rank
   * @param sequence its number, the same on every rank; 0 if the call was rejected
   * @param rank the rank in that communicator
   * @param ranks the number of ranks
   * @param peer the root or the peer, or -1
   * @param group the number of the group that it was launched with, or 0
   * @param type the type of its elements
   * @param reduction the reduction, or null
   * @param bytes its size, as the basis of bandwidths
   * @param choice what NCCL chose, or null
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
      long bytes,
      String choice) {

    /** Returns whether the call was rejected, so that no other rank has this operation. */
    boolean rejected() {
      return sequence == 0;
    }

    Moved in(String name) {
      return new Moved(name, sequence, rank, ranks, peer, group, type, reduction, bytes, choice);
    }
  }

  /** Returns its bus bandwidth in bytes per second; 0 if it failed or took no time. */
  double busBandwidth() {
    return error != null || ended <= begun
        ? 0
        : operation.bytes()
            * BusBandwidth.factor(name, operation.ranks())
            / ((ended - begun) / NANOS_PER_SECOND);
  }

  /** Returns whether no rank can finish it before all have started it. */
  boolean synchronizes() {
    return operation != null && error == null && SYNCHRONIZING.contains(name);
  }

  TraceSpan shifted(long nanos) {
    return new TraceSpan(
        source, rank, lane, name, called + nanos, begun + nanos, ended + nanos, operation, error);
  }

  TraceSpan begunAt(long nanos) {
    return new TraceSpan(
        source, rank, lane, name, called, nanos, Math.max(nanos, ended), operation, error);
  }

  TraceSpan withOperation(Moved newOperation) {
    return new TraceSpan(source, rank, lane, name, called, begun, ended, newOperation, error);
  }
}
