package io.nccl4j.internal.reference.collective;

import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;

/**
 * What the ranks of one process show each other of the {@link DirectAllReduce} that they are in:
 * where each rank's data lies, and how many pieces of its part have been claimed and finished, by
 * whomever.
 *
 * <p>Transfers have numbers that grow by one. A rank writes its own row and then says that it has
 * come; who has seen all come may read the rows, and claim pieces, until all pieces are finished.
 * Others may do all of that, and come to the next transfer, before a slow rank has read any row;
 * but none comes to the one after that before the slow rank has left this one. So each rank has two
 * rows, for odd and for even numbers.
 *
 * <p>Counts of pieces go on from one transfer to the next, so that a claim that comes late is none,
 * and a rank that comes touches no line that others look at. Whoever claims a piece looks
 * afterwards whether the board is closed; who closes it looks afterwards which pieces are claimed.
 * One of them sees the other.
 */
public final class DirectSync {
  private static final VarHandle CELL = MethodHandles.arrayElementVarHandle(long[].class);

  // What one rank waits for while another works lies two pairs of cache lines apart.
  private static final int ROW = 64;
  private static final int COME = 16;
  private static final int SIGNATURE = 17;
  private static final int FACTOR = 19;
  private static final int CLAIMED = 32;
  private static final int FINISHED = 48;

  private final long[] cells;
  private final MemorySegment[] sends;
  private final MemorySegment[] recvs;
  private volatile boolean closed;
  private volatile boolean spoilt;

  public DirectSync(int ranks) {
    cells = new long[(ranks + 1) * ROW];
    sends = new MemorySegment[2 * ranks];
    recvs = new MemorySegment[2 * ranks];
  }

  private static int cell(int rank, int field) {
    return rank * ROW + field;
  }

  private static int odd(long number) {
    return (int) number & 1;
  }

  /** Shows a rank's row, and that the rank has come to a transfer. */
  void arrive(
      int rank, long number, long signature, MemorySegment send, MemorySegment recv, long factor) {
    // To store a reference costs the collector something, which the same buffers again need not.
    int row = 2 * rank + odd(number);
    if (sends[row] != send) {
      sends[row] = send;
    }
    if (recvs[row] != recv) {
      recvs[row] = recv;
    }
    cells[cell(rank, SIGNATURE + odd(number))] = signature;
    cells[cell(rank, FACTOR + odd(number))] = factor;
    CELL.setRelease(cells, cell(rank, COME), number);
  }

  /** Returns whether a rank has come to this transfer, or to a later one. */
  boolean hasArrived(int rank, long number) {
    return (long) CELL.getAcquire(cells, cell(rank, COME)) >= number;
  }

  /** Returns what a rank that has come signed its row with. */
  long signature(int rank, long number) {
    return cells[cell(rank, SIGNATURE + odd(number))];
  }

  MemorySegment send(int rank, long number) {
    return sends[2 * rank + odd(number)];
  }

  MemorySegment recv(int rank, long number) {
    return recvs[2 * rank + odd(number)];
  }

  /** Returns what a rank's data is multiplied with, as raw bits. */
  long factor(int rank, long number) {
    return cells[cell(rank, FACTOR + odd(number))];
  }

  /**
   * Claims a piece of a rank's part; returns which one, or -1 if none is left.
   *
   * @param before how many pieces the rank had in all transfers before
   */
  int claim(int rank, long before, int pieces) {
    int at = cell(rank, CLAIMED);
    long seen = (long) CELL.getOpaque(cells, at);
    while (seen < before + pieces) {
      long witness = (long) CELL.compareAndExchange(cells, at, seen, seen + 1);
      if (witness == seen) {
        return (int) (seen - before);
      }
      seen = witness;
    }
    return -1;
  }

  /** Says that claimed pieces of a rank's part are finished, or will not be touched any more. */
  void finish(int rank, int pieces) {
    CELL.getAndAdd(cells, cell(rank, FINISHED), (long) pieces);
  }

  /**
   * Returns whether all pieces of a rank's part are finished, so that it may have gone on.
   *
   * @param before how many pieces the rank had in all transfers before
   */
  boolean finished(int rank, long before, int pieces) {
    return (long) CELL.getAcquire(cells, cell(rank, FINISHED)) >= before + pieces;
  }

  boolean closed() {
    return closed;
  }

  /** Says, before it is finished, that a piece has no result, and that there will be a failure. */
  void spoil() {
    spoilt = true;
  }

  boolean spoilt() {
    return spoilt;
  }

  /**
   * Lets no claimed piece be worked on that is not already, in this transfer or a later one, and
   * waits for the others, which wait for nothing themselves.
   */
  void close() {
    closed = true;
    for (int rank = 0; 2 * rank < sends.length; rank++) {
      // In this order: a piece that is claimed and given up in between is then one too many.
      while ((long) CELL.getVolatile(cells, cell(rank, FINISHED))
          != (long) CELL.getVolatile(cells, cell(rank, CLAIMED))) {
        Thread.onSpinWait();
        letOthersRun();
      }
    }
  }

  @SuppressWarnings("ThreadPriorityCheck") // The point: to let a piece be finished.
  private static void letOthersRun() {
    Thread.yield();
  }

  /** Keeps a rank's buffers no longer reachable, once all are finished. */
  void forget(int rank) {
    for (int row = 2 * rank; row < 2 * rank + 2; row++) {
      sends[row] = null;
      recvs[row] = null;
    }
  }
}
