package io.nccl4j;

import io.nccl4j.internal.util.CloseAll;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Interrupts;
import java.time.Duration;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;

/**
 * Runs the ranks of one communicator, each in its own platform thread. The first rank that fails
 * ends the others: their communicators are aborted and their threads interrupted.
 */
final class RankRunner<X extends Exception> {
  /** What a rank does. */
  interface Body<X extends Exception> {
    void run(int rank) throws X;
  }

  private final Body<X> body;
  private final Runnable abort;
  private final Duration timeout;
  private final List<Thread> threads = new ArrayList<>();
  // Both guarded by this.
  private final BitSet running = new BitSet();
  private Throwable first;

  /**
   * Prepares a run.
   *
   * @param abort aborts the communicators of all ranks; called once, by the first rank that fails
   * @param timeout how long the other threads may take to end after a failure
   */
  RankRunner(Body<X> body, Runnable abort, Duration timeout) {
    this.body = body;
    this.abort = abort;
    this.timeout = timeout;
  }

  /** Runs all ranks and waits for them; throws the first failure with later ones suppressed. */
  void run(int ranks) throws X {
    running.set(0, ranks);
    for (int i = 0; i < ranks; i++) {
      int rank = i;
      threads.add(
          Thread.ofPlatform().daemon().name("nccl4j-rank-" + rank).unstarted(() -> runRank(rank)));
    }
    for (int rank = 0; rank < ranks; rank++) {
      try {
        threads.get(rank).start();
      } catch (Error noThread) {
        ended(rank, ranks);
        fail(noThread);
        break;
      }
    }
    try {
      awaitEndOrFailure();
    } catch (InterruptedException e) {
      fail(Interrupts.cancelled("the ranks of runRanks"));
    }
    // After a failure, the remaining ranks have the timeout of an operation to end.
    Deadline deadline = Deadline.after(timeout);
    Interrupts.awaitUninterruptibly(() -> awaitEnd(deadline));
    throwFailure();
  }

  private void runRank(int rank) {
    try {
      body.run(rank);
    } catch (Throwable failure) {
      fail(failure);
    } finally {
      ended(rank, rank + 1);
    }
  }

  private synchronized void ended(int from, int to) {
    running.clear(from, to);
    notifyAll();
  }

  private void fail(Throwable failure) {
    synchronized (this) {
      if (first != null) {
        CloseAll.suppress(first, failure);
        return;
      }
      first = failure;
      notifyAll();
    }
    CloseAll.after(failure, abort);
    // Ends waits that an abort does not end: in a rendezvous, a child communicator or the program.
    threads.stream().filter(thread -> thread != Thread.currentThread()).forEach(Thread::interrupt);
  }

  private synchronized void awaitEndOrFailure() throws InterruptedException {
    while (first == null && !running.isEmpty()) {
      wait();
    }
  }

  private synchronized void awaitEnd(Deadline deadline) throws InterruptedException {
    while (!running.isEmpty() && !deadline.passed()) {
      wait(Math.max(1, deadline.remainingMillis()));
    }
    if (!running.isEmpty()) {
      CloseAll.suppress(
          first,
          new NcclTimeoutException(
              "runRanks", timeout, "the threads of ranks " + running + " still run"));
    }
  }

  @SuppressWarnings("unchecked") // Ranks throw unchecked exceptions or an X.
  private synchronized void throwFailure() throws X {
    if (first instanceof Error error) {
      throw error;
    }
    if (first != null) {
      throw (X) first;
    }
  }
}
