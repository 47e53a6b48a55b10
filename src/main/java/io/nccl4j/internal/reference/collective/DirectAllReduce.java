package io.nccl4j.internal.reference.collective;

import io.nccl4j.NcclException;
import io.nccl4j.NcclInvalidUsageException;
import io.nccl4j.NcclResult;
import io.nccl4j.internal.util.RankSets;
import io.nccl4j.schedule.RingPieces;
import java.lang.foreign.MemorySegment;
import java.util.BitSet;

/**
 * An all-reduce among ranks of one process that reach each other's memory: each has a part of the
 * elements, folds it from every rank's input, and stores the result to every rank's output, tile by
 * tile.
 *
 * <p>The parts are the chunks of the ring, and what a rank's chunk is folded of, and in which
 * order, is as on the ring: so the results are the same bits.
 *
 * <p>All ranks come before anybody reads or writes, and none leaves before all parts are finished.
 * A rank that has finished its own helps with what others have not begun, at once where there are
 * more ranks than processors, since then those may not be running.
 *
 * <p>A rank that fails in between or is aborted closes the {@link DirectSync}: nothing further is
 * begun, and what others have begun on its memory is finished before it goes. Who has not seen all
 * finished by then never will, and hears of the failure as in any other wait.
 */
final class DirectAllReduce implements Transfer {
  /** How often a rank looks whether others are finished before it helps one that could be. */
  private static final int LOOKS_BEFORE_HELP = 200;

  private static final int PROCESSORS = Runtime.getRuntime().availableProcessors();

  private enum Phase {
    COMING,
    WORKING,
    LEAVING,
    DONE
  }

  private final CollectiveRunner collective;
  private final RankContext context;
  private final DirectSync sync;
  private final int rank;
  private final int ranks;
  private final boolean crowded;
  private final RingPieces pieces;
  private final MemorySegment[] sends;
  private final MemorySegment[] recvs;
  private final long[] factors;

  private Phase phase = Phase.DONE;
  private long number;
  // How many pieces each rank had in all transfers before.
  private long before;
  private int elementBytes;
  private int next;
  private int looks;

  DirectAllReduce(CollectiveRunner collective) {
    this.collective = collective;
    this.context = collective.context();
    this.sync = context.directSync();
    this.rank = context.rank();
    this.ranks = context.size();
    this.crowded = ranks > PROCESSORS;
    this.pieces = new RingPieces(context.layout(), ranks);
    this.sends = new MemorySegment[ranks];
    this.recvs = new MemorySegment[ranks];
    this.factors = new long[ranks];
  }

  void start(Call call) {
    elementBytes = call.type.bytes();
    before += pieces.perRank();
    pieces.divide(call.count, elementBytes);
    number++;
    next = 0;
    phase = Phase.COMING;
    long factor = collective.reduction().factor();
    sync.arrive(rank, number, collective.signature(), call.send, call.recv, factor);
  }

  @Override
  public boolean advance() {
    return switch (phase) {
      case COMING -> all() && work();
      case WORKING -> work();
      case LEAVING -> leave();
      case DONE -> false;
    };
  }

  @Override
  public boolean done() {
    return phase == Phase.DONE;
  }

  /** Returns whether all ranks have come, and then knows where their data lies. */
  private boolean all() {
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

  /** Ends the sleep of ranks that have waited for so long that they no longer look. */
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
      // All at once: others look at this count, and take its cache line away each time.
      sync.finish(rank, claimed);
    }
    phase = Phase.LEAVING;
    next = 0;
    looks = 0;
    leave();
    return true;
  }

  private boolean leave() {
    while (next < ranks && sync.finished(next, before, pieces.perRank())) {
      next++;
    }
    if (next == ranks) {
      if (sync.spoilt()) {
        return false;
      }
      phase = Phase.DONE;
      wakePeers();
      return true;
    }
    if (!crowded && looks++ < LOOKS_BEFORE_HELP) {
      return false;
    }
    return help(next);
  }

  /** Works on a piece of another rank's part; returns whether there was one that nobody had. */
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
    return sync.claim(owner, before, pieces.perRank());
  }

  /** Works on a claimed piece, unless the board is closed. */
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
        sync.spoil();
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

  /** Says whose memory was gone when this rank came to it. */
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
            "it is of rank " + owner + ": " + cause.getMessage());
    typed.initCause(cause);
    return typed.initDetails(
        context.details(collective.function(), RankSets.of(owner), new BitSet()));
  }

  private static boolean isAlive(MemorySegment memory) {
    return memory.scope().isAlive();
  }

  /** Leaves an all-reduce that has failed: afterwards nobody touches this rank's memory. */
  void withdraw() {
    if (phase != Phase.DONE) {
      sync.close();
      phase = Phase.DONE;
    }
  }

  /** Keeps nobody's buffers reachable any longer. */
  void forget() {
    for (int peer = 0; peer < ranks; peer++) {
      sends[peer] = null;
      recvs[peer] = null;
    }
    sync.forget(rank);
  }
}
