package io.nccl4j.rendezvous;

import io.nccl4j.NcclTimeoutException;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.rendezvous.ExchangeFailedException;
import io.nccl4j.internal.rendezvous.RankBackend;
import io.nccl4j.internal.rendezvous.Ranks;
import io.nccl4j.internal.util.Deadline;
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
 * <p>If rank 0 cannot make an id, gives up, or finds that a rank uses another backend, the ranks
 * that wait, and those that come later, fail at once with its reason.
 */
public final class InProcessRendezvous extends AbstractRendezvous {
  private final Exchange exchange;

  private InProcessRendezvous(Exchange meeting, RankInfo member) {
    super(member);
    this.exchange = meeting;
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
    RankInfo first = RankInfo.of(0, size).withTimeout(timeout);
    Exchange exchange = new Exchange(size);
    return IntStream.range(0, size)
        .mapToObj(rank -> RankInfo.of(rank, size).withTimeout(first.timeout()))
        .map(member -> new InProcessRendezvous(exchange, member))
        .toList();
  }

  @Override
  UniqueId make(int round, Supplier<UniqueId> maker) {
    try {
      return super.make(round, maker);
    } catch (RuntimeException | Error e) {
      exchange.change(() -> exchange.round(round).fail(e));
      throw e;
    }
  }

  @Override
  void publish(int round, UniqueId id, RankBackend backend, Deadline deadline)
      throws InterruptedException, ExchangeFailedException {
    // Not interruptibly: also a rank that is interrupted before it begins must notify the others.
    exchange.lock.lock();
    try {
      Round table = exchange.round(round);
      table.backends[0] = backend;
      awaitAll(table.arrived, round, deadline);
      RankBackend.Mismatch.check(RankBackend.mismatch(table.backends));
      table.id = id;
      exchange.changed.signalAll();
      awaitAll(table.served, round, deadline);
      exchange.rounds.remove(round);
    } catch (RuntimeException | InterruptedException | ExchangeFailedException e) {
      // A rank that comes later must not take an id that rank 0 has given up.
      exchange.round(round).fail(e);
      exchange.changed.signalAll();
      throw e;
    } finally {
      exchange.lock.unlock();
    }
  }

  /** Waits until every rank but 0 is in a set. */
  private void awaitAll(BitSet ranks, int round, Deadline deadline) throws InterruptedException {
    if (!await(() -> ranks.cardinality() == size() - 1, deadline)) {
      String missing = Ranks.text(Ranks.missing(ranks, size()));
      throw new NcclTimeoutException(
          "InProcessRendezvous.exchange",
          deadline.timeout(),
          "missing " + missing + " of " + size() + " in round " + round);
    }
  }

  @Override
  UniqueId follow(int round, RankBackend backend, Deadline deadline) throws InterruptedException {
    exchange.lock.lockInterruptibly();
    try {
      Round table = exchange.round(round);
      table.backends[rank()] = backend;
      table.arrived.set(rank());
      exchange.changed.signalAll();
      if (!await(() -> table.id != null || table.failure != null, deadline)) {
        throw new NcclTimeoutException(
            "InProcessRendezvous.exchange",
            deadline.timeout(),
            "rank 0 has not published the id of round " + round + others(table));
      }
      if (table.failure != null) {
        throw new RendezvousException(
            "rank 0 failed in round " + round + ": " + table.failure.getMessage(), table.failure);
      }
      table.served.set(rank());
      exchange.changed.signalAll();
      return table.id;
    } finally {
      exchange.lock.unlock();
    }
  }

  /** Returns the ranks but 0 that have not come, to be read after what was waited for. */
  private String others(Round table) {
    BitSet missing = Ranks.missing(table.arrived, size());
    return missing.isEmpty() ? "" : "; missing " + Ranks.text(missing) + " of " + size();
  }

  /** Waits, with the lock held, and returns false if the deadline came first. */
  private boolean await(BooleanSupplier done, Deadline deadline) throws InterruptedException {
    while (!done.getAsBoolean()) {
      checkStillOpen();
      if (deadline.passed()) {
        return false;
      }
      exchange.changed.awaitNanos(deadline.remainingNanos());
    }
    return true;
  }

  @Override
  void release() {
    exchange.change(() -> {});
  }

  @Override
  public String toString() {
    return "InProcessRendezvous[rank " + rank() + " of " + size() + "]";
  }

  /** What the ranks share. */
  private static final class Exchange {
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();
    private final Map<Integer, Round> rounds = new HashMap<>();
    private final int size;

    private Exchange(int size) {
      this.size = size;
    }

    private Round round(int number) {
      return rounds.computeIfAbsent(number, absent -> new Round(size));
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
    private final RankBackend[] backends;
    private final BitSet arrived = new BitSet();
    private final BitSet served = new BitSet();

    private Round(int size) {
      backends = new RankBackend[size];
    }

    private void fail(Throwable cause) {
      id = null;
      failure = cause;
    }
  }
}
