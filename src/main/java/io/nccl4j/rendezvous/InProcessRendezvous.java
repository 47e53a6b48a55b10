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
import java.util.Objects;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import org.jspecify.annotations.NullMarked;
import org.jspecify.annotations.Nullable;

/**
 * A rendezvous of the threads of one process, one per rank.
 *
 * <p>If rank 0 cannot create an id, times out, or detects a rank with another backend, all ranks
 * that wait or arrive later fail at once with the same reason.
 */
@NullMarked
public final class InProcessRendezvous extends AbstractRendezvous {
  private final Exchange exchange;

  private InProcessRendezvous(Exchange exchange, RankInfo rankInfo) {
    super(rankInfo);
    this.exchange = exchange;
  }

  /**
   * {@return one rendezvous per rank, in rank order; each rank's thread uses and closes its own}
   *
   * @param size the number of ranks, at least 1
   * @param timeout the timeout of one exchange; positive
   * @throws IllegalArgumentException if the size is less than 1 or the timeout not positive
   */
  public static List<InProcessRendezvous> of(int size, Duration timeout) {
    RankInfo first = RankInfo.of(0, size).withTimeout(timeout);
    Exchange exchange = new Exchange(size);
    return IntStream.range(0, size)
        .mapToObj(rank -> RankInfo.of(rank, size).withTimeout(first.timeout()))
        .map(rankInfo -> new InProcessRendezvous(exchange, rankInfo))
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
    // Not interruptible: a rank interrupted before it begins must still notify the others.
    exchange.lock.lock();
    try {
      Round state = exchange.round(round);
      state.backends[0] = backend;
      awaitAll(state.arrived, round, deadline);
      RankBackend.Mismatch.check(RankBackend.mismatch(state.backends));
      state.id = id;
      exchange.changed.signalAll();
      awaitAll(state.served, round, deadline);
      exchange.rounds.remove(round);
    } catch (RuntimeException | InterruptedException | ExchangeFailedException e) {
      // A rank that arrives later must not take an id that rank 0 has abandoned.
      exchange.round(round).fail(e);
      exchange.changed.signalAll();
      throw e;
    } finally {
      exchange.lock.unlock();
    }
  }

  /** Waits until the set contains every rank except 0. */
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
      Round state = exchange.round(round);
      state.backends[rank()] = backend;
      state.arrived.set(rank());
      exchange.changed.signalAll();
      if (!await(() -> state.id != null || state.failure != null, deadline)) {
        throw new NcclTimeoutException(
            "InProcessRendezvous.exchange",
            deadline.timeout(),
            "rank 0 has not published the id of round " + round + missingText(state));
      }
      if (state.failure != null) {
        throw new RendezvousException(
            "rank 0 failed in round " + round + ": " + state.failure.getMessage(), state.failure);
      }
      state.served.set(rank());
      exchange.changed.signalAll();
      return Objects.requireNonNull(state.id);
    } finally {
      exchange.lock.unlock();
    }
  }

  /** Returns a message suffix with the ranks, except 0, that have not arrived; may be empty. */
  private String missingText(Round state) {
    BitSet missing = Ranks.missing(state.arrived, size());
    return missing.isEmpty() ? "" : "; missing " + Ranks.text(missing) + " of " + size();
  }

  /** Waits for the condition with the lock held; returns false if the deadline passes first. */
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

  /** The state that all ranks share. */
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

    private void change(Runnable update) {
      lock.lock();
      try {
        update.run();
        changed.signalAll();
      } finally {
        lock.unlock();
      }
    }
  }

  /** One round; guarded by the exchange's lock. */
  private static final class Round {
    private @Nullable UniqueId id;
    private @Nullable Throwable failure;
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
