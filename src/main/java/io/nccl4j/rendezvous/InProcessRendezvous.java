package io.nccl4j.rendezvous;

import io.nccl4j.NcclTimeoutException;
import io.nccl4j.UniqueId;
import java.time.Duration;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;
import java.util.stream.IntStream;

/**
 * A rendezvous of threads of one process, one per rank.
 *
 * <p>If rank 0 cannot make an id or gives up, the ranks that wait, and those that come later, learn
 * so at once and do not wait for their deadline.
 */
public final class InProcessRendezvous extends OrderedRendezvous {
  private final Meeting meeting;

  private InProcessRendezvous(Meeting meeting, Member member) {
    super(member);
    this.meeting = meeting;
  }

  /**
   * {@return the places of all ranks, rank 0 first, for each rank's thread to use and close its
   * own}
   *
   * @param size how many ranks; 1 or more
   * @param timeout the longest that one exchange may take; positive
   * @throws IllegalArgumentException if the size is less than 1 or the timeout not positive
   */
  public static List<InProcessRendezvous> of(int size, Duration timeout) {
    Member first = Member.of(0, size).withTimeout(timeout);
    Meeting meeting = new Meeting();
    return IntStream.range(0, size)
        .mapToObj(rank -> Member.of(rank, size).withTimeout(first.timeout()))
        .map(member -> new InProcessRendezvous(meeting, member))
        .toList();
  }

  @Override
  UniqueId make(int round, Supplier<UniqueId> maker) {
    try {
      return super.make(round, maker);
    } catch (RuntimeException | Error e) {
      meeting.change(() -> meeting.round(round).fail(e));
      throw e;
    }
  }

  @Override
  void publish(int round, UniqueId id, Deadline deadline) throws InterruptedException {
    // Not interruptibly: who is interrupted before it begins has to tell the others too.
    meeting.lock.lock();
    try {
      Round table = meeting.round(round);
      table.id = id;
      meeting.changed.signalAll();
      awaitServed(table, round, deadline);
      meeting.rounds.remove(round);
    } catch (RuntimeException | InterruptedException e) {
      // Who comes later must not take an id that rank 0 has given up.
      meeting.round(round).fail(e);
      throw e;
    } finally {
      meeting.lock.unlock();
    }
  }

  private void awaitServed(Round table, int round, Deadline deadline) throws InterruptedException {
    if (!await(() -> table.served.cardinality() == size() - 1, deadline)) {
      String missing = Ranks.text(Ranks.missing(table.served, size()));
      throw new NcclTimeoutException(
          "InProcessRendezvous.exchange",
          deadline.timeout(),
          "missing " + missing + " of " + size() + " in round " + round);
    }
  }

  @Override
  UniqueId follow(int round, Deadline deadline) throws InterruptedException {
    meeting.lock.lockInterruptibly();
    try {
      Round table = meeting.round(round);
      if (!await(() -> table.id != null || table.failure != null, deadline)) {
        throw new NcclTimeoutException(
            "InProcessRendezvous.exchange",
            deadline.timeout(),
            "rank 0 has not published the id of round " + round);
      }
      if (table.failure != null) {
        throw new RendezvousException(
            "rank 0 failed in round " + round + ": " + table.failure.getMessage(), table.failure);
      }
      table.served.set(rank());
      meeting.changed.signalAll();
      return table.id;
    } finally {
      meeting.lock.unlock();
    }
  }

  /** Waits, with the lock held, and returns false if the deadline came first. */
  private boolean await(BooleanSupplier done, Deadline deadline) throws InterruptedException {
    while (!done.getAsBoolean()) {
      checkStillOpen();
      if (deadline.passed()) {
        return false;
      }
      meeting.changed.awaitNanos(deadline.remainingNanos());
    }
    return true;
  }

  @Override
  void release() {
    meeting.change(() -> {});
  }

  @Override
  public String toString() {
    return "InProcessRendezvous[rank " + rank() + " of " + size() + "]";
  }

  /** What the ranks share. */
  private static final class Meeting {
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();
    private final Map<Integer, Round> rounds = new HashMap<>();

    private Round round(int number) {
      return rounds.computeIfAbsent(number, absent -> new Round());
    }

    private void change(Runnable what) {
      lock.lock();
      try {
        what.run();
        changed.signalAll();
      } finally {
        lock.unlock();
      }
    }
  }

  /** One round; what it holds is guarded by the meeting's lock. */
  private static final class Round {
    private UniqueId id;
    private Throwable failure;
    private final BitSet served = new BitSet();

    private void fail(Throwable cause) {
      id = null;
      failure = cause;
    }
  }
}
