package io.nccl4j.internal.reference.collective;

import io.nccl4j.NcclException;
import io.nccl4j.NcclResult;
import io.nccl4j.internal.schedule.ChannelDivision;
import io.nccl4j.internal.schedule.Ring;
import io.nccl4j.internal.schedule.RingCursor;
import io.nccl4j.internal.util.RankSets;
import io.nccl4j.schedule.Layout;
import io.nccl4j.spi.Contract;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;

/**
 * An all-reduce among ranks of one process, which access each other's memory. Each rank owns a part
 * of the elements, folds it from every rank's input, and stores the result to every rank's output,
 * tile by tile.
 *
 * <p>The parts are the chunks of the ring, and each chunk is folded in the ring's rank order. So
 * the results are bitwise identical to those of the ring.
 *
 * <p>All ranks arrive before any rank reads or writes, and no rank leaves before all parts are
 * finished. A rank that fails or is aborted meanwhile closes the {@link DirectSync}: no other rank
 * accesses its memory afterwards, and the others learn of the failure as in any other wait.
 */
final class DirectAllReduce implements Transfer {
  /** Elements of this rank's part, which are on one channel. */
  private record Slice(int channel, long begin, long count) {}

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
  private final long number;
  private final int elementBytes;
  // The ranks in the order of the fold, of each channel.
  private final List<int[]> orders = new ArrayList<>();
  private final List<Slice> slices = new ArrayList<>();
  private final MemorySegment[] sends;
  private final MemorySegment[] recvs;
  private final long[] factors;

  private Phase phase = Phase.ARRIVING;
  // The next rank to arrive, or the next slice to work on.
  private int next;

  /**
   * Arrives at a transfer.
   *
   * @param number the number of the transfer, from 1
   */
  DirectAllReduce(CollectiveRunner collective, Call call, long number) {
    this.collective = collective;
    this.context = collective.context();
    this.sync = context.directSync();
    this.rank = context.rank();
    this.ranks = context.size();
    this.number = number;
    this.elementBytes = call.type().bytes();
    divide(call.count());
    this.sends = new MemorySegment[ranks];
    this.recvs = new MemorySegment[ranks];
    this.factors = new long[ranks];
    long factor = collective.reduction().factor();
    sync.arrive(
        rank,
        new DirectSync.Arrival(number, collective.signature(), call.send(), call.recv(), factor));
    wakePeers();
  }

  /** Determines the slices whose result this rank is the first to obtain on the rings. */
  private void divide(long elements) {
    Layout layout = context.layout();
    ChannelDivision division = new ChannelDivision(layout, true, ranks);
    division.divide(elements, elementBytes);
    long chunkCount = layout.chunkBytes() / elementBytes;
    long sliceCount = Math.min(chunkCount, layout.sliceBytes() / elementBytes);
    for (int channel = 0; channel < division.channels(); channel++) {
      Ring ring = Ring.of(layout, channel, ranks);
      int position = ring.position(rank);
      int[] order = new int[ranks];
      for (int turn = 0; turn < ranks; turn++) {
        order[turn] = ring.rank((position + 1 + turn) % ranks);
      }
      orders.add(order);
      RingCursor cursor = new RingCursor(position, ranks);
      cursor.allReduce(
          division.begin(channel), division.end(channel), chunkCount, sliceCount, elementBytes);
      for (; !cursor.done(); cursor.advance()) {
        if (cursor.completes() && cursor.count() > 0) {
          slices.add(new Slice(channel, cursor.element(), cursor.count()));
        }
      }
    }
  }

  @Override
  public boolean advance() {
    return switch (phase) {
      case ARRIVING -> arrive();
      case WORKING -> work();
      case LEAVING -> leave();
      case DONE -> false;
    };
  }

  @Override
  public boolean done() {
    return phase == Phase.DONE;
  }

  /** Reads the locations of the data of the ranks that have arrived; returns whether all have. */
  private boolean arrive() {
    while (next < ranks) {
      DirectSync.Arrival arrival = sync.arrival(next, number);
      if (arrival == null) {
        return false;
      }
      collective.checkSignature(arrival.signature(), next);
      sends[next] = arrival.send();
      recvs[next] = arrival.recv();
      factors[next] = arrival.factor();
      next++;
    }
    phase = Phase.WORKING;
    next = 0;
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

  /** Works on the next slice of this rank's part; returns false if the sync object is closed. */
  private boolean work() {
    if (next < slices.size()) {
      if (!sync.begin()) {
        return false;
      }
      try {
        reduce(slices.get(next));
      } catch (IllegalStateException e) {
        throw closedBuffer(e);
      } finally {
        sync.end();
      }
      next++;
    }
    if (next == slices.size()) {
      phase = Phase.LEAVING;
      sync.finish(rank, number);
      wakePeers();
    }
    return true;
  }

  private void reduce(Slice slice) {
    long offset = slice.begin() * elementBytes;
    int[] order = orders.get(slice.channel());
    collective.reduction().reduce(sends, factors, order, recvs, offset, slice.count());
  }

  private boolean leave() {
    if (!sync.allFinished(number)) {
      return false;
    }
    sync.forget(rank);
    phase = Phase.DONE;
    return true;
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
        Contract.get()
            .failure(
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

  @Override
  public void withdraw() {
    if (phase != Phase.DONE) {
      sync.close();
      sync.forget(rank);
    }
  }
}
