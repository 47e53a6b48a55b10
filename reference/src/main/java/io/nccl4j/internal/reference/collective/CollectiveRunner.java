package io.nccl4j.internal.reference.collective;

import io.nccl4j.DataType;
import io.nccl4j.Operation;
import io.nccl4j.internal.reference.reduce.Reduction;
import io.nccl4j.internal.reference.reduce.ReductionOp;
import io.nccl4j.internal.reference.transport.ReceiveLink;
import io.nccl4j.internal.reference.transport.Route;
import io.nccl4j.internal.schedule.ChannelDivision;
import io.nccl4j.spi.CommunicatorDriver;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import java.util.ArrayList;
import java.util.List;

/**
 * Runs one rank's part of a collective: chooses the algorithm and the number of channels, and
 * advances the transfers.
 */
public final class CollectiveRunner implements Transfer {
  /** Up to this size, the number of hops costs more than the bytes that each rank moves. */
  private static final long TREE_BYTES = 256 << 10;

  private final RankContext context;
  private final Reduction reduction = new Reduction();
  private final List<Transfer> active = new ArrayList<>();
  // The number of direct all-reduces until now.
  private long directTransfers;
  private String function;
  private long signature;
  // The time at which a slice of another operation was first seen, or 0.
  private long mismatchSince;

  public CollectiveRunner(RankContext context) {
    this.context = context;
  }

  RankContext context() {
    return context;
  }

  Reduction reduction() {
    return reduction;
  }

  /** Returns the signature of every slice of this collective. */
  long signature() {
    return signature;
  }

  public String function() {
    return function;
  }

  public void start(Call call) {
    function = call.operation().method();
    signature = sign(call, signature);
    mismatchSince = 0;
    active.clear();
    if (!call.movesData()) {
      startBarrier();
      return;
    }
    if (call.operator() != null) {
      reduction.prepare(call.type(), call.operator(), context.size());
    }
    switch (call.operation()) {
      case ALL_TO_ALL, GATHER, SCATTER -> startExchange(call);
      default -> {
        if (context.size() == 1) {
          runSingleRank(call);
        } else {
          startReducing(call);
        }
      }
    }
  }

  /** Waits for all ranks, whose calls are compared as for any other collective. */
  private void startBarrier() {
    if (context.size() > 1) {
      MemorySegment element = Arena.ofAuto().allocate(ValueLayout.JAVA_INT);
      Call barrier =
          new Call(
              Operation.ALL_REDUCE,
              DataType.INT32,
              1,
              ReductionOp.standard(ReductionOp.Kind.SUM.code()),
              CommunicatorDriver.NO_PEER,
              element,
              element);
      reduction.prepare(barrier.type(), barrier.operator(), context.size());
      startAllReduce(barrier);
    }
  }

  private void startReducing(Call call) {
    switch (call.operation()) {
      case ALL_REDUCE -> startAllReduce(call);
      case REDUCE_SCATTER -> active.add(RingPipeline.reduceScatter(this, call));
      case ALL_GATHER -> active.add(RingPipeline.allGather(this, call));
      default -> active.add(new ChainPipeline(this, call));
    }
  }

  private void startAllReduce(Call call) {
    AllReduceAlgorithm algorithm = algorithm(call.bytes());
    if (algorithm == AllReduceAlgorithm.DIRECT) {
      directTransfers++;
      active.add(new DirectAllReduce(this, call, directTransfers));
      return;
    }
    boolean tree = algorithm == AllReduceAlgorithm.TREE;
    ChannelDivision division = new ChannelDivision(context.layout(), !tree, context.size());
    division.divide(call.count(), call.type().bytes());
    for (int channel = 0; channel < division.channels(); channel++) {
      long begin = division.begin(channel);
      long end = division.end(channel);
      active.add(
          tree
              ? new TreeAllReduce(this, channel, call, begin, end)
              : RingPipeline.allReduce(this, channel, call, begin, end));
    }
  }

  /** Chooses the algorithm from values that are the same on all ranks. */
  private AllReduceAlgorithm algorithm(long bytes) {
    AllReduceAlgorithm configured = context.algorithm();
    if (configured == AllReduceAlgorithm.DIRECT && !context.inOneProcess()) {
      return AllReduceAlgorithm.RING;
    }
    if (configured != null) {
      return configured;
    }
    if (context.inOneProcess()) {
      return AllReduceAlgorithm.DIRECT;
    }
    return context.size() > 2 && bytes <= TREE_BYTES
        ? AllReduceAlgorithm.TREE
        : AllReduceAlgorithm.RING;
  }

  private void startExchange(Call call) {
    PointToPoint exchange = new PointToPoint(context, Route.EXCHANGE);
    exchange.reportAs(function);
    int rank = context.rank();
    long bytes = call.bytes();
    for (int peer = 0; peer < context.size(); peer++) {
      boolean sends = call.operation() != Operation.GATHER || peer == call.peer();
      boolean receives = call.operation() != Operation.SCATTER || peer == call.peer();
      long sendSlice = call.operation() == Operation.GATHER ? 0 : peer * bytes;
      long recvSlice = call.operation() == Operation.SCATTER ? 0 : peer * bytes;
      if (peer == rank && call.send() != null && call.recv() != null) {
        copyOwn(call.send(), sendSlice, call.recv(), recvSlice, bytes);
      } else {
        if (sends && call.send() != null) {
          exchange.send(peer, call.send(), sendSlice, bytes, signature);
        }
        if (receives && call.recv() != null) {
          exchange.receive(peer, call.recv(), recvSlice, bytes, signature);
        }
      }
    }
    active.add(exchange);
  }

  private static void copyOwn(
      MemorySegment from, long fromOffset, MemorySegment to, long toOffset, long bytes) {
    if (from.address() + fromOffset != to.address() + toOffset) {
      MemorySegment.copy(from, fromOffset, to, toOffset, bytes);
    }
  }

  private void runSingleRank(Call call) {
    if (call.operator() != null) {
      reduction.reduceSingleRank(call.send(), 0, call.recv(), 0, call.count());
    } else {
      copyOwn(call.send(), 0, call.recv(), 0, call.bytes());
    }
  }

  /**
   * Returns the signature of a call after the previous ones: ranks whose collectives have differed
   * may both have completed them, if each only sent.
   */
  private static long sign(Call call, long previous) {
    long sum = previous * 0x9E3779B97F4A7C15L + call.shape();
    sum = sum * 0x9E3779B97F4A7C15L + call.count();
    return sum * 0x9E3779B97F4A7C15L + call.peer();
  }

  @Override
  public boolean advance() {
    boolean moved = false;
    for (Transfer transfer : active) {
      moved |= transfer.advance();
    }
    return moved;
  }

  @Override
  public boolean done() {
    return active.stream().allMatch(Transfer::done);
  }

  /**
   * Returns whether a slice of this collective has arrived; throws if it is of another operation.
   *
   * @param bytes the size that the slice must have
   */
  boolean ready(ReceiveLink link, long bytes) {
    if (!link.ready()) {
      return false;
    }
    if (link.signature() != signature || link.bytes() != bytes) {
      checkMismatch(link.source());
      return false;
    }
    return true;
  }

  /** Throws if the signature of a rank of this process is of another collective. */
  void checkSignature(long signed, int source) {
    if (signed != signature) {
      checkMismatch(source);
    }
  }

  /** Throws for a slice of another operation, once its rank has reported the operation. */
  private void checkMismatch(int source) {
    if (!context.mayExplain(function, source, mismatchSince)) {
      throw context.mismatch(
          function,
          "the collectives of ranks %d and %d differ: rank %d is in %s, rank %d called that or an earlier one differently"
              .formatted(context.rank(), source, context.rank(), function, source));
    }
    mismatchSince = mismatchSince == 0 ? System.nanoTime() : mismatchSince;
  }

  /**
   * Ends the last collective; no buffer stays reachable.
   *
   * @param failed whether it is to be cut off: afterwards no other rank accesses this rank's memory
   */
  public void end(boolean failed) {
    if (failed) {
      active.forEach(Transfer::withdraw);
    }
    active.clear();
  }

  /** Releases a slice that was read, after checking that it was valid until now. */
  void release(ReceiveLink link) {
    VarHandle.loadLoadFence();
    if (context.failureSignalled()) {
      context.checkSource(link.source(), function);
    }
    link.release();
  }
}
