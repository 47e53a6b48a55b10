package io.nccl4j.tools.perf;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.IntFunction;

/**
 * Exchanges results between the processes of a run, by small collectives on the ranks themselves. A
 * single process sends nothing. Used by one thread at a time, while no other thread uses the ranks.
 */
final class CrossRankStats {
  private final Ranks ranks;
  private final Settings settings;

  CrossRankStats(Ranks ranks, Settings settings) {
    this.ranks = ranks;
    this.settings = settings;
  }

  private boolean alone() {
    return settings.job().alone();
  }

  /** Waits until all processes have called this. */
  void barrier() {
    any(false);
  }

  /** Returns whether {@code own} is true in any process. */
  boolean any(boolean own) {
    return sum(own ? 1 : 0) > 0;
  }

  /** Returns the sum of a number over all processes. */
  double sum(double own) {
    return alone() ? own : combine(new double[] {own}, 0, ReduceOp.SUM)[0];
  }

  /** Returns the element-wise maximum over all processes. */
  double[] max(double[] own) {
    return alone() ? own : combine(own, Double.NEGATIVE_INFINITY, ReduceOp.MAX);
  }

  /** Returns the average of a number over all processes, of the given kind. */
  double average(double own, Settings.Average which) {
    if (alone()) {
      return own;
    }
    return switch (which) {
      case RANK0 -> sum(settings.job().process() == 0 ? own : 0);
      case AVG -> sum(own) / settings.job().processes();
      case MIN -> -max(new double[] {-own})[0];
      case MAX -> max(new double[] {own})[0];
    };
  }

  /** Reduces numbers over processes. All ranks but a process's first contribute {@code neutral}. */
  private double[] combine(double[] own, double neutral, ReduceOp op) {
    double[] neutrals = new double[own.length];
    Arrays.fill(neutrals, neutral);
    MemorySegment result =
        exchange(
            DataType.FLOAT64,
            own.length,
            own.length,
            rank -> MemorySegment.ofArray(rank == 0 ? own : neutrals),
            (comm, send, recv, stream) -> comm.allReduce(send, recv, op, stream));
    return result.toArray(ValueLayout.JAVA_DOUBLE_UNALIGNED);
  }

  /** Returns the locations of all ranks, given those of this process's ranks. */
  List<RankLocation> locations(List<RankLocation> own) {
    if (alone()) {
      return own;
    }
    MemorySegment result =
        exchange(
            DataType.UINT8,
            RankLocation.BYTES,
            (long) RankLocation.BYTES * settings.worldRanks(),
            rank -> MemorySegment.ofArray(own.get(rank).toBytes()),
            Communicator::allGather);
    return result
        .elements(MemoryLayout.sequenceLayout(RankLocation.BYTES, ValueLayout.JAVA_BYTE))
        .map(bytes -> RankLocation.ofBytes(bytes.toArray(ValueLayout.JAVA_BYTE)))
        .toList();
  }

  /** One small collective of one rank. */
  private interface Step {
    void enqueue(Communicator comm, Buffer send, Buffer recv, Stream stream);
  }

  /** Runs a collective on all ranks; returns the data received by this process's first rank. */
  private MemorySegment exchange(
      DataType type,
      long sendCount,
      long recvCount,
      IntFunction<MemorySegment> content,
      Step collective) {
    List<Buffer> sends = new ArrayList<>();
    List<Buffer> recvs = new ArrayList<>();
    for (int rank = 0; rank < ranks.count(); rank++) {
      sends.add(ranks.comm(rank).newBuffer(type, sendCount));
      recvs.add(ranks.comm(rank).newBuffer(type, recvCount));
      sends.get(rank).copyFromAsync(content.apply(rank), ranks.stream(rank));
    }
    Group.run(
        () -> {
          for (int rank = 0; rank < ranks.count(); rank++) {
            collective.enqueue(
                ranks.comm(rank), sends.get(rank), recvs.get(rank), ranks.stream(rank));
          }
        });
    for (int rank = 0; rank < ranks.count(); rank++) {
      ranks.complete(rank, settings.flags().timeout());
    }
    MemorySegment result = MemorySegment.ofArray(new byte[(int) recvs.getFirst().byteSize()]);
    recvs.getFirst().copyTo(result, ranks.stream(0));
    sends.forEach(Buffer::close);
    recvs.forEach(Buffer::close);
    return result;
  }
}
