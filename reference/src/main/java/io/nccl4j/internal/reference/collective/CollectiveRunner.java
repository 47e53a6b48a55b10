package io.nccl4j.internal.reference.collective;

import io.nccl4j.Operation;
import io.nccl4j.internal.reference.reduce.Reduction;
import io.nccl4j.internal.reference.transport.ReceiveLink;
import io.nccl4j.internal.reference.transport.Route;
import io.nccl4j.internal.reference.transport.SharedMemorySync;
import io.nccl4j.internal.schedule.ChannelDivision;
import io.nccl4j.schedule.Layout;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.VarHandle;

/**
 * Runs one rank's part of a collective: chooses the algorithm and the number of channels, and
 * advances the transfers. Reused for every collective, so that none allocates.
 */
public final class CollectiveRunner implements Transfer {
  /** Up to this size, the number of hops costs more than the bytes that each rank moves. */
  private static final long TREE_BYTES = 256 << 10;

  /**
   * Up to this size, synchronizing through shared memory costs less than a ring's hops. Not less
   * than a tree may have: above, all ranks use a ring, also while some do not know yet that a
   * process refuses to share memory.
   */
  private static final long SHARED_MEMORY_BYTES = TREE_BYTES;

  private final RankContext context;
  private final Reduction reduction = new Reduction();
  private final ChannelDivision ringDivision;
  private final ChannelDivision treeDivision;
  private final RingPipeline[] rings;
  private final TreeAllReduce[] trees;
  private final Transfer[] active;
  private final ChainPipeline chain;
  private final PointToPoint exchange;
  private DirectAllReduce direct;
  private SharedMemoryAllReduce shared;
  // The all-reduce whose algorithm depends on whether the sync object becomes available, or null.
  private Call undecided;
  private int activeCount;
  private String function;
  private long signature;
  // The time at which a slice of another operation was first seen, or 0.
  private long mismatchSince;

  public CollectiveRunner(RankContext context) {
    this.context = context;
    Layout layout = context.layout();
    int channels = layout.channels();
    this.ringDivision = new ChannelDivision(layout, true, context.size());
    this.treeDivision = new ChannelDivision(layout, false, context.size());
    this.rings = new RingPipeline[channels];
    this.trees = new TreeAllReduce[channels];
    this.active = new Transfer[channels];
    this.chain = new ChainPipeline(this);
    this.exchange = new PointToPoint(context, Route.EXCHANGE);
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
    function = call.operation.method();
    signature = sign(call, signature);
    mismatchSince = 0;
    undecided = null;
    activeCount = 0;
    if (call.operator != null) {
      reduction.prepare(call.type, call.operator, context.size(), call.bytes());
    }
    switch (call.operation) {
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

  private void startReducing(Call call) {
    switch (call.operation) {
      case ALL_REDUCE -> startAllReduce(call);
      case REDUCE_SCATTER -> ring(0).reduceScatter(call);
      case ALL_GATHER -> ring(0).allGather(call);
      default -> {
        chain.start(call);
        active[activeCount++] = chain;
      }
    }
  }

  private void startAllReduce(Call call) {
    AllReduceAlgorithm algorithm = algorithm(call.bytes());
    if (algorithm == AllReduceAlgorithm.DIRECT) {
      startDirect(call);
      return;
    }
    boolean tree = algorithm == AllReduceAlgorithm.TREE;
    ChannelDivision division = tree ? treeDivision : ringDivision;
    division.divide(call.count, call.type.bytes());
    for (int channel = 0; channel < division.channels(); channel++) {
      long begin = division.begin(channel);
      long end = division.end(channel);
      if (tree) {
        tree(channel).start(call, begin, end);
      } else {
        ring(channel).allReduce(call, begin, end);
      }
    }
  }

  private void startDirect(Call call) {
    if (context.inOneProcess()) {
      direct().start(call);
      return;
    }
    SharedMemorySync sync = context.sharedMemorySync();
    if (sync == null) {
      undecided = call;
      return;
    }
    if (shared == null) {
      shared = new SharedMemoryAllReduce(this, sync);
    }
    shared.start(call);
    active[activeCount++] = shared;
  }

  /** Chooses the algorithm from values that are the same on all ranks. */
  private AllReduceAlgorithm algorithm(long bytes) {
    AllReduceAlgorithm configured = context.algorithm();
    boolean direct = context.inOneProcess() || context.allShareMemory();
    if (configured == null) {
      return direct ? directOrRing(bytes) : ringOrTree(bytes);
    }
    return configured == AllReduceAlgorithm.DIRECT && !direct
        ? AllReduceAlgorithm.RING
        : configured;
  }

  private AllReduceAlgorithm directOrRing(long bytes) {
    return context.inOneProcess() || bytes <= SHARED_MEMORY_BYTES
        ? AllReduceAlgorithm.DIRECT
        : AllReduceAlgorithm.RING;
  }

  private AllReduceAlgorithm ringOrTree(long bytes) {
    return context.size() > 2 && bytes <= TREE_BYTES
        ? AllReduceAlgorithm.TREE
        : AllReduceAlgorithm.RING;
  }

  private DirectAllReduce direct() {
    if (direct == null) {
      direct = new DirectAllReduce(this);
    }
    active[activeCount++] = direct;
    return direct;
  }

  private RingPipeline ring(int channel) {
    if (rings[channel] == null) {
      rings[channel] = new RingPipeline(this, channel);
    }
    active[activeCount++] = rings[channel];
    return rings[channel];
  }

  private TreeAllReduce tree(int channel) {
    if (trees[channel] == null) {
      trees[channel] = new TreeAllReduce(this, channel);
    }
    active[activeCount++] = trees[channel];
    return trees[channel];
  }

  private void startExchange(Call call) {
    exchange.clear();
    exchange.reportAs(function);
    int rank = context.rank();
    long bytes = call.bytes();
    for (int peer = 0; peer < context.size(); peer++) {
      boolean sends = call.operation != Operation.GATHER || peer == call.peer;
      boolean receives = call.operation != Operation.SCATTER || peer == call.peer;
      long sendSlice = call.operation == Operation.GATHER ? 0 : peer * bytes;
      long recvSlice = call.operation == Operation.SCATTER ? 0 : peer * bytes;
      if (peer == rank && call.send != null && call.recv != null) {
        copyOwn(call.send, sendSlice, call.recv, recvSlice, bytes);
      } else {
        if (sends && call.send != null) {
          exchange.send(peer, call.send, sendSlice, bytes, signature);
        }
        if (receives && call.recv != null) {
          exchange.receive(peer, call.recv, recvSlice, bytes, signature);
        }
      }
    }
    active[activeCount++] = exchange;
  }

  private static void copyOwn(
      MemorySegment from, long fromOffset, MemorySegment to, long toOffset, long bytes) {
    if (from.address() + fromOffset != to.address() + toOffset) {
      MemorySegment.copy(from, fromOffset, to, toOffset, bytes);
    }
  }

  private void runSingleRank(Call call) {
    if (call.operator != null) {
      reduction.reduceSingleRank(call.send, 0, call.recv, 0, call.count);
    } else {
      copyOwn(call.send, 0, call.recv, 0, call.bytes());
    }
  }

  /**
   * Returns the signature of a call after the previous ones: ranks whose collectives have differed
   * may both have completed them, if each only sent.
   */
  private static long sign(Call call, long previous) {
    long sum = previous * 0x9E3779B97F4A7C15L + call.shape();
    sum = sum * 0x9E3779B97F4A7C15L + call.count;
    return sum * 0x9E3779B97F4A7C15L + call.peer;
  }

  /** Starts an all-reduce that waits for the sync object, if that can be used or is refused. */
  private boolean decide() {
    Call call = undecided;
    undecided = null;
    startAllReduce(call);
    return undecided == null;
  }

  @Override
  public boolean advance() {
    if (undecided != null && !decide()) {
      return false;
    }
    boolean moved = false;
    for (int i = 0; i < activeCount; i++) {
      moved |= active[i].advance();
    }
    return moved;
  }

  @Override
  public boolean done() {
    if (undecided != null) {
      return false;
    }
    for (int i = 0; i < activeCount; i++) {
      if (!active[i].done()) {
        return false;
      }
    }
    return true;
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

  /**
   * Returns whether the signature of a rank of another process is of this collective; if not,
   * throws once that rank has reported its operation.
   */
  boolean agrees(long signed, int source) {
    if (signed != signature) {
      checkMismatch(source);
      return false;
    }
    return true;
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

  /** Leaves a failed collective; afterwards no other rank accesses this rank's memory. */
  public void withdraw() {
    if (direct != null) {
      direct.withdraw();
    }
  }

  /** Keeps no buffers reachable. */
  public void forget() {
    undecided = null;
    reduction.forget();
    if (direct != null) {
      direct.forget();
    }
    if (shared != null) {
      shared.forget();
    }
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
