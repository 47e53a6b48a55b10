package io.nccl4j.internal.reference.collective;

import io.nccl4j.internal.util.Interrupts;
import java.lang.foreign.MemorySegment;

/**
 * The state that the ranks of one process share during a {@link DirectAllReduce}: the data of the
 * ranks that have arrived, and which of them have finished their part.
 *
 * <p>Transfers are numbered consecutively. A rank reads the data of all ranks before it finishes
 * its part, and none arrives at the next transfer before all have finished this one.
 */
public final class DirectSync {
  /**
   * A rank that has arrived at a transfer.
   *
   * @param factor the factor by which the rank's data is multiplied, as raw bits
   */
  record Arrival(
      long number, long signature, MemorySegment send, MemorySegment recv, long factor) {}

  private final Arrival[] arrivals;
  private final long[] finished;
  private int working;
  private boolean closed;

  public DirectSync(int ranks) {
    arrivals = new Arrival[ranks];
    finished = new long[ranks];
  }

  synchronized void arrive(int rank, Arrival arrival) {
    arrivals[rank] = arrival;
  }

  /** Returns the arrival of a rank at a transfer, or null if it has not arrived. */
  synchronized Arrival arrival(int rank, long number) {
    Arrival arrival = arrivals[rank];
    return arrival == null || arrival.number != number ? null : arrival;
  }

  /** Begins to access the ranks' data, until {@link #end}; returns false if this is closed. */
  synchronized boolean begin() {
    if (!closed) {
      working++;
    }
    return !closed;
  }

  synchronized void end() {
    working--;
    notifyAll();
  }

  synchronized void finish(int rank, long number) {
    finished[rank] = number;
  }

  /** Returns whether all ranks have finished their parts of a transfer. */
  synchronized boolean allFinished(long number) {
    for (long last : finished) {
      if (last < number) {
        return false;
      }
    }
    return true;
  }

  /** Prevents access to the ranks' data, and waits until none is accessed. */
  synchronized void close() {
    closed = true;
    Interrupts.awaitUninterruptibly(
        () -> {
          while (working > 0) {
            wait();
          }
        });
  }

  /** Drops the references to a rank's buffers. */
  synchronized void forget(int rank) {
    arrivals[rank] = null;
  }
}
