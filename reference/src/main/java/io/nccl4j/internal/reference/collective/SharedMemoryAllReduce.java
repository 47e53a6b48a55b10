package io.nccl4j.internal.reference.collective;

import io.nccl4j.internal.reference.transport.ProtocolViolationException;
import io.nccl4j.internal.reference.transport.SharedMemorySync;
import io.nccl4j.internal.schedule.RingPieces;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/**
 * An all-reduce among ranks of several processes of one host, through a {@link SharedMemorySync}.
 * The owner of each element and the order in which it is folded are those of the ring, so the
 * results are bitwise identical.
 *
 * <p>The elements are processed in rounds whose inputs of all ranks fit in the caches. In each
 * round a rank puts its input into its row. With two ranks, or little data, each rank then folds
 * the parts of all owners, which takes one wait. Otherwise each rank folds its own part, writes the
 * result to its row, and takes the results of the others. Up to {@link SharedMemorySync#DEPTH}
 * rounds are in flight at a time.
 *
 * <p>Round counts continue from one transfer to the next. No rank overwrites data that another may
 * still read: a rank puts its input of round r once all ranks have folded round {@code r - DEPTH},
 * and folds round r once all ranks have taken the results of round {@code r - DEPTH}. A rank's
 * input stays unchanged even if its operation fails, so no rank reads data that was never sent.
 */
final class SharedMemoryAllReduce implements Transfer {
  /** Up to this size, folding all parts costs less than a second wait. */
  private static final long FOLD_ALL_BYTES = 16 << 10;

  /** The size of a partial result of more than two ranks; it fits in the first-level cache. */
  private static final int TILE_BYTES = 8 << 10;

  private final CollectiveRunner collective;
  private final int rank;
  private final int ranks;
  private final RingPieces pieces;
  private final StepCounter putting = new StepCounter();
  private final StepCounter folding = new StepCounter();
  private final StepCounter taking = new StepCounter();
  private final SharedMemorySync sync;
  private final MemorySegment tile = Arena.ofAuto().allocate(TILE_BYTES, 64);

  // The minimum number of rounds that all other ranks are known to have completed.
  private long allPut;
  private long allFolded;
  private long allTaken;

  private MemorySegment send;
  private MemorySegment recv;
  private int elementBytes;
  private long partCount;
  private boolean foldsAll;

  /** The progress of one of the three steps: the current piece and the position in it. */
  private final class StepCounter {
    private long done;
    private long end;
    private int piece;
    private long inPiece;

    void start(long rounds) {
      end = done + rounds;
      piece = 0;
      inPiece = 0;
    }

    boolean due() {
      return done < end;
    }

    void advanceTo(int owner) {
      pieces.moveTo(owner, piece);
    }

    /** Returns the offset in a buffer, in bytes, of the owner's part of this round. */
    long offset() {
      return (pieces.begin() + inPiece) * elementBytes;
    }

    /** Returns the number of elements of the owner's part of this round; 0 or less for none. */
    long count() {
      return Math.min(partCount, pieces.count() - inPiece);
    }

    void next() {
      done++;
      inPiece += partCount;
      if (inPiece >= pieces.maxCount()) {
        inPiece = 0;
        piece++;
      }
    }
  }

  SharedMemoryAllReduce(CollectiveRunner collective, SharedMemorySync sync) {
    this.collective = collective;
    this.sync = sync;
    RankContext context = collective.context();
    this.rank = context.rank();
    this.ranks = context.size();
    this.pieces = new RingPieces(context.layout(), ranks);
  }

  void start(Call call) {
    send = call.send;
    recv = call.recv;
    elementBytes = call.type.bytes();
    partCount = SharedMemorySync.partBytes(ranks) / elementBytes;
    foldsAll = ranks == 2 || call.bytes() <= FOLD_ALL_BYTES;
    pieces.divide(call.count, elementBytes);
    long rounds = pieces.perRank() * Math.ceilDiv(pieces.maxCount(), partCount);
    putting.start(rounds);
    folding.start(rounds);
    taking.start(rounds);
  }

  @Override
  public boolean advance() {
    boolean moved = false;
    // Steps that other ranks wait for come first.
    while (tryPut() || tryFold() || tryTake()) {
      moved = true;
    }
    return moved;
  }

  @Override
  public boolean done() {
    return !taking.due();
  }

  private boolean tryPut() {
    long needed = putting.done + 1 - SharedMemorySync.DEPTH;
    // If inputs are scaled, this rank folds its own part from its row too.
    if (!putting.due() || folding.done < needed || !allHaveFolded(needed)) {
      return false;
    }
    for (int owner = 0; owner < ranks; owner++) {
      put(owner);
    }
    sync.sign(rank, putting.done, collective.signature());
    putting.next();
    sync.put(rank, putting.done);
    return true;
  }

  private void put(int owner) {
    putting.advanceTo(owner);
    long count = putting.count();
    boolean read = foldsAll || owner != rank || !foldsInPlace(rank);
    if (count > 0 && read) {
      long at = sync.input(rank, putting.done, owner);
      if (collective.reduction().scales()) {
        collective.reduction().scale(send, putting.offset(), sync.memory(), at, count);
      } else {
        MemorySegment.copy(send, putting.offset(), sync.memory(), at, count * elementBytes);
      }
    }
  }

  private boolean tryFold() {
    long needed = folding.done + 1;
    if (folding.done == putting.done
        || !allHavePut(needed)
        || !(foldsAll || allHaveTaken(needed - SharedMemorySync.DEPTH))) {
      return false;
    }
    if (foldsAll) {
      for (int owner = 0; owner < ranks; owner++) {
        fold(owner);
      }
    } else {
      fold(rank);
      publishResult();
    }
    folding.next();
    sync.folded(rank, folding.done);
    if (foldsAll) {
      taking.next();
      sync.taken(rank, taking.done);
    }
    return true;
  }

  private void fold(int owner) {
    folding.advanceTo(owner);
    long count = folding.count();
    long step = ranks == 2 ? partCount : TILE_BYTES / elementBytes;
    for (long done = 0; done < count; done += step) {
      fold(owner, done * elementBytes, Math.min(step, count - done));
    }
  }

  /** Folds elements of an owner's part, with the ranks in ring order. */
  private void fold(int owner, long at, long count) {
    int turn = pieces.first();
    int source = pieces.order()[turn];
    MemorySegment partial = memory(source);
    long partialOffset = offset(source, owner) + at;
    for (int left = ranks - 1; left > 0; left--) {
      source = pieces.order()[++turn];
      MemorySegment out = left == 1 ? recv : tile;
      long outOffset = left == 1 ? folding.offset() + at : 0;
      collective
          .reduction()
          .foldScaled(
              memory(source),
              offset(source, owner) + at,
              partial,
              partialOffset,
              out,
              outOffset,
              count,
              left == 1);
      partial = out;
      partialOffset = outOffset;
    }
  }

  /** Returns whether a rank's data is folded from its send buffer: only this rank's, unscaled. */
  private boolean foldsInPlace(int source) {
    return source == rank && !collective.reduction().scales();
  }

  private MemorySegment memory(int source) {
    return foldsInPlace(source) ? send : sync.memory();
  }

  private long offset(int source, int owner) {
    return foldsInPlace(source) ? folding.offset() : sync.input(source, folding.done, owner);
  }

  private void publishResult() {
    long bytes = folding.count() * elementBytes;
    if (bytes > 0) {
      long at = sync.result(rank, folding.done);
      MemorySegment.copy(recv, folding.offset(), sync.memory(), at, bytes);
    }
  }

  private boolean tryTake() {
    if (taking.done == folding.done || !allHaveFolded(taking.done + 1)) {
      return false;
    }
    for (int turn = 1; turn < ranks; turn++) {
      take((rank + turn) % ranks);
    }
    taking.next();
    sync.taken(rank, taking.done);
    return true;
  }

  private void take(int owner) {
    taking.advanceTo(owner);
    long bytes = taking.count() * elementBytes;
    if (bytes > 0) {
      long at = sync.result(owner, taking.done);
      MemorySegment.copy(sync.memory(), at, recv, taking.offset(), bytes);
    }
  }

  private boolean allHavePut(long rounds) {
    for (int peer = 0; allPut < rounds && peer < ranks; peer++) {
      if (peer != rank) {
        long put = sync.put(peer);
        checkCount(peer, put, folding.done + SharedMemorySync.DEPTH);
        if (put < rounds || !collective.agrees(sync.signature(peer, rounds - 1), peer)) {
          return false;
        }
      }
    }
    allPut = Math.max(allPut, rounds);
    return true;
  }

  private boolean allHaveFolded(long rounds) {
    for (int peer = 0; allFolded < rounds && peer < ranks; peer++) {
      if (peer != rank) {
        long folded = sync.folded(peer);
        checkCount(peer, folded, putting.done);
        if (folded < rounds) {
          return false;
        }
      }
    }
    allFolded = Math.max(allFolded, rounds);
    return true;
  }

  private boolean allHaveTaken(long rounds) {
    for (int peer = 0; allTaken < rounds && peer < ranks; peer++) {
      if (peer != rank) {
        long taken = sync.taken(peer);
        checkCount(peer, taken, putting.done);
        if (taken < rounds) {
          return false;
        }
      }
    }
    allTaken = Math.max(allTaken, rounds);
    return true;
  }

  /** Throws if a rank reports more rounds than it can have completed. */
  private void checkCount(int peer, long rounds, long max) {
    if (rounds < 0 || rounds > max) {
      throw new ProtocolViolationException(
          peer, "it reports " + rounds + " rounds; the maximum is " + max);
    }
  }

  /** Keeps no buffers reachable. */
  void forget() {
    send = null;
    recv = null;
  }
}
