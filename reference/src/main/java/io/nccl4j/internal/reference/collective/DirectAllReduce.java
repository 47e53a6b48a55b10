package io.nccl4j.internal.reference.collective;

import io.nccl4j.NcclException;
import io.nccl4j.NcclInvalidUsageException;
import io.nccl4j.NcclResult;
import io.nccl4j.internal.schedule.RingPieces;
import io.nccl4j.internal.util.RankSets;
import io.nccl4j.spi.Contract;
import java.lang.foreign.MemorySegment;
import java.util.BitSet;

/**
 * An all-reduce among ranks of one process, which access each other's memory. Each rank owns a part
 * of the elements, folds it from every rank's input, and stores the result to every rank's output,
 * tile by tile.
 *
 * <p>The parts are the chunks of the ring, and each chunk is folded in the ring's rank order. So
 * the results are bitwise identical to those of the ring.
 *
 * <p>All ranks arrive before any rank reads or writes, and no rank leaves before all parts are
 * finished. A rank that has finished its own part helps with pieces that others have not started:
 * immediately if there are more ranks than processors, since the other ranks may then not be
 * running.
 *
 * <p>A rank that fails or is aborted meanwhile closes the {@link DirectSync}. No further piece is
 * started, and pieces that others have started on its memory are finished before the rank leaves. A
 * rank that has not seen all parts finished by then never will, and learns of the failure as in any
 * other wait.
 */
final class DirectAllReduce implements Transfer {
  /** The number of times a rank polls for another rank's completion before it helps that rank. */
  private static final int POLLS_BEFORE_HELP = 200;

  private static final int PROCESSORS = Runtime.getRuntime().availableProcessors();

  private enum Phase {
    ARRIVING,
    WORKING,
    LEAVING,
    DONE
  }

  private final CollectiveRunner collective;
  private final RankContext context;
  private final DirectSync sync;
  private final int rank;
  private final int ranks;
  private final boolean oversubscribed;
  private final RingPieces pieces;
  private final MemorySegment[] sends;
  private final MemorySegment[] recvs;
  private final long[] factors;

  private Phase phase = Phase.DONE;
  private long number;
  // The number of pieces that each rank had in all previous transfers.
  private long base;
  private int elementBytes;
  private int next;
  private int polls;

  DirectAllReduce(CollectiveRunner collective) {
    this.collective = collective;
    this.context = collective.context();
    this.sync = context.directSync();
    this.rank = context.rank();
    this.ranks = context.size();
    this.oversubscribed = ranks > PROCESSORS;
    this.pieces = new RingPieces(context.layout(), ranks);
    this.sends = new MemorySegment[ranks];
    this.recvs = new MemorySegment[ranks];
    this.factors = new long[ranks];
  }

  void start(Call call) {
    elementBytes = call.type.bytes();
    base += pieces.perRank();
    pieces.divide(call.count, elementBytes);
    number++;
    next = 0;
    phase = Phase.ARRIVING;
    long factor = collective.reduction().factor();
    sync.arrive(rank, number, collective.signature(), call.send, call.recv, factor);
  }

  @Override
  public boolean advance() {
    return switch (phase) {
      case ARRIVING -> allArrived() && work();
      case WORKING -> work();
      case LEAVING -> leave();
      case DONE -> false;
    };
  }

  @Override
  public boolean done() {
    return phase == Phase.DONE;
  }

  /** Returns whether all ranks have arrived; if so, reads the locations of their data. */
  private boolean allArrived() {
    while (next < ranks) {
      if (next != rank) {
        if (!sync.hasArrived(next, number)) {
          return false;
        }
        collective.checkSignature(sync.signature(next, number), next);
      }
      next++;
    }
    for (int peer = 0; peer < ranks; peer++) {
      MemorySegment send = sync.send(peer, number);
      if (sends[peer] != send) {
        sends[peer] = send;
      }
      MemorySegment recv = sync.recv(peer, number);
      if (recvs[peer] != recv) {
        recvs[peer] = recv;
      }
      factors[peer] = sync.factor(peer, number);
    }
    phase = Phase.WORKING;
    wakePeers();
    return true;
  }

  /** Wakes ranks that have stopped polling. */
  private void wakePeers() {
    for (int peer = 0; peer < ranks; peer++) {
      if (peer != rank) {
        context.wake(peer);
      }
    }
  }

  /** Works on this rank's own part; returns whether anything was done. */
  private boolean work() {
    int claimed = 0;
    try {
      for (int piece = claim(rank); piece >= 0; piece = claim(rank)) {
        claimed++;
        reduce(rank, piece);
        if (context.failureSignalled()) {
          return true;
        }
      }
    } finally {
      // Once for all pieces: others poll this count, and each poll takes its cache line.
      sync.finish(rank, claimed);
    }
    phase = Phase.LEAVING;
    next = 0;
    polls = 0;
    leave();
    return true;
  }

  private boolean leave() {
    while (next < ranks && sync.finished(next, base, pieces.perRank())) {
      next++;
    }
    if (next == ranks) {
      if (sync.failed()) {
        return false;
      }
      phase = Phase.DONE;
      wakePeers();
      return true;
    }
    if (!oversubscribed && polls++ < POLLS_BEFORE_HELP) {
      return false;
    }
    return help(next);
  }

  /** Works on a piece of another rank's part; returns whether one was left to claim. */
  private boolean help(int owner) {
    int piece = claim(owner);
    if (piece < 0) {
      return false;
    }
    try {
      reduce(owner, piece);
    } finally {
      sync.finish(owner, 1);
    }
    return true;
  }

  private int claim(int owner) {
    return sync.claim(owner, base, pieces.perRank());
  }

  /** Works on a claimed piece, unless the sync object is closed. */
  private void reduce(int owner, int piece) {
    boolean worked = false;
    try {
      if (!sync.closed()) {
        pieces.moveTo(owner, piece);
        reducePiece();
        worked = true;
      }
    } catch (IllegalStateException e) {
      throw closedBuffer(e);
    } finally {
      if (!worked) {
        sync.markFailed();
      }
    }
  }

  private void reducePiece() {
    if (pieces.count() > 0) {
      collective
          .reduction()
          .reduce(
              sends,
              factors,
              pieces.order(),
              pieces.first(),
              recvs,
              pieces.begin() * elementBytes,
              pieces.count());
    }
  }

  /** Returns an exception that names the rank whose buffer was closed. */
  private NcclException closedBuffer(IllegalStateException cause) {
    int owner = 0;
    while (owner < ranks && isAlive(sends[owner]) && isAlive(recvs[owner])) {
      owner++;
    }
    if (owner == ranks) {
      throw cause;
    }
    NcclException typed =
        new NcclInvalidUsageException(
            collective.function(),
            NcclResult.INVALID_USAGE.code(),
            "a buffer was closed while the operation used it",
            "the buffer belongs to rank " + owner + ": " + cause.getMessage());
    typed.initCause(cause);
    return Contract.get()
        .initDetails(
            typed, context.details(collective.function(), RankSets.of(owner), new BitSet()));
  }

  private static boolean isAlive(MemorySegment memory) {
    return memory.scope().isAlive();
  }

  /** Leaves a failed all-reduce; afterwards no other rank accesses this rank's memory. */
  void withdraw() {
    if (phase != Phase.DONE) {
      sync.close();
      phase = Phase.DONE;
    }
  }

  /** Keeps no buffers reachable. */
  void forget() {
    for (int peer = 0; peer < ranks; peer++) {
      sends[peer] = null;
      recvs[peer] = null;
    }
    sync.forget(rank);
  }
}
