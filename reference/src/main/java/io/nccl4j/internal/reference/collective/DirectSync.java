package io.nccl4j.internal.reference.collective;

import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;

/**
 * The state that the ranks of one process share during a {@link DirectAllReduce}: the location of
 * each rank's data, and how many pieces of its part have been claimed and finished by any rank.
 *
 * <p>Transfers are numbered consecutively. A rank writes its own row and then announces its
 * arrival. A rank that has seen all ranks arrive may read the rows and claim pieces until all
 * pieces are finished. Other ranks may do all of that, and arrive at the next transfer, before a
 * slow rank has read any row; but none arrives at the one after that before the slow rank has left
 * this one. So each rank has two rows, for odd and for even numbers.
 *
 * <p>Piece counts continue from one transfer to the next, so that a late claim has no effect, and
 * an arriving rank need not reset counts that others poll. A rank that claims a piece checks
 * afterwards whether this object is closed; a rank that closes it checks afterwards which pieces
 * are claimed. At least one of them sees the other.
 */
public final class DirectSync {
  private static final VarHandle CELL = MethodHandles.arrayElementVarHandle(long[].class);

  // Fields that ranks poll while others write are two pairs of cache lines apart.
  private static final int ROW = 64;
  private static final int ARRIVED = 16;
  private static final int SIGNATURE = 17;
  private static final int FACTOR = 19;
  private static final int CLAIMED = 32;
  private static final int FINISHED = 48;

  private final long[] cells;
  private final MemorySegment[] sends;
  private final MemorySegment[] recvs;
  private volatile boolean closed;
  private volatile boolean failed;

  public DirectSync(int ranks) {
    cells = new long[(ranks + 1) * ROW];
    sends = new MemorySegment[2 * ranks];
    recvs = new MemorySegment[2 * ranks];
  }

  private static int cell(int rank, int field) {
    return rank * ROW + field;
  }

  private static int parity(long number) {
    return (int) number & 1;
  }

  /** Writes a rank's row and announces that the rank has arrived at a transfer. */
  void arrive(
      int rank, long number, long signature, MemorySegment send, MemorySegment recv, long factor) {
    // Storing a reference runs a garbage collector barrier; skipped if the buffers are the same.
    int row = 2 * rank + parity(number);
    if (sends[row] != send) {
      sends[row] = send;
    }
    if (recvs[row] != recv) {
      recvs[row] = recv;
    }
    cells[cell(rank, SIGNATURE + parity(number))] = signature;
    cells[cell(rank, FACTOR + parity(number))] = factor;
    CELL.setRelease(cells, cell(rank, ARRIVED), number);
  }

  /** Returns whether a rank has arrived at this transfer or a later one. */
  boolean hasArrived(int rank, long number) {
    return (long) CELL.getAcquire(cells, cell(rank, ARRIVED)) >= number;
  }

  /** Returns the signature of an arrived rank. */
  long signature(int rank, long number) {
    return cells[cell(rank, SIGNATURE + parity(number))];
  }

  MemorySegment send(int rank, long number) {
    return sends[2 * rank + parity(number)];
  }

  MemorySegment recv(int rank, long number) {
    return recvs[2 * rank + parity(number)];
  }

  /** Returns the factor by which a rank's data is multiplied, as raw bits. */
  long factor(int rank, long number) {
    return cells[cell(rank, FACTOR + parity(number))];
  }

  /**
   * Claims a piece of a rank's part; returns its index, or -1 if none is left.
   *
   * @param base the number of pieces that the rank had in all previous transfers
   */
  int claim(int rank, long base, int pieces) {
    int at = cell(rank, CLAIMED);
    long seen = (long) CELL.getOpaque(cells, at);
    while (seen < base + pieces) {
      long witness = (long) CELL.compareAndExchange(cells, at, seen, seen + 1);
      if (witness == seen) {
        return (int) (seen - base);
      }
      seen = witness;
    }
    return -1;
  }

  /** Records that claimed pieces of a rank's part are finished, or have been given up. */
  void finish(int rank, int pieces) {
    CELL.getAndAdd(cells, cell(rank, FINISHED), (long) pieces);
  }

  /**
   * Returns whether all pieces of a rank's part are finished.
   *
   * @param base the number of pieces that the rank had in all previous transfers
   */
  boolean finished(int rank, long base, int pieces) {
    return (long) CELL.getAcquire(cells, cell(rank, FINISHED)) >= base + pieces;
  }

  boolean closed() {
    return closed;
  }

  /**
   * Records that a piece has no result, and that a failure will be reported; called before {@link
   * #finish}.
   */
  void markFailed() {
    failed = true;
  }

  boolean failed() {
    return failed;
  }

  /**
   * Prevents work on pieces that are not yet started, in this transfer and later ones, and waits
   * for those that are; they wait for nothing.
   */
  void close() {
    closed = true;
    for (int rank = 0; 2 * rank < sends.length; rank++) {
      // In this order: a piece that is claimed and given up in between then only looks unfinished.
      while ((long) CELL.getVolatile(cells, cell(rank, FINISHED))
          != (long) CELL.getVolatile(cells, cell(rank, CLAIMED))) {
        Thread.onSpinWait();
        yieldThread();
      }
    }
  }

  @SuppressWarnings("ThreadPriorityCheck") // Yields to the thread that is to finish a piece.
  private static void yieldThread() {
    Thread.yield();
  }

  /** Drops the references to a rank's buffers, after all pieces are finished. */
  void forget(int rank) {
    for (int row = 2 * rank; row < 2 * rank + 2; row++) {
      sends[row] = null;
      recvs[row] = null;
    }
  }
}
