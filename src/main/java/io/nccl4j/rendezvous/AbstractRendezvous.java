package io.nccl4j.rendezvous;

import io.nccl4j.Backend;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.rendezvous.ExchangeFailedException;
import io.nccl4j.internal.rendezvous.RankBackend;
import io.nccl4j.internal.util.CloseAll;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Loggers;
import java.time.Duration;
import java.util.Objects;
import java.util.OptionalInt;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;
import org.apache.logging.log4j.Logger;

/**
 * Base of every rendezvous of this package. Counts rounds, allows one at a time, and rejects
 * further rounds after the first failure.
 */
abstract sealed class AbstractRendezvous implements Rendezvous
    permits InProcessRendezvous,
        FileRendezvous,
        TcpRendezvous,
        TorchStoreRendezvous,
        AllGatherRendezvous {
  private static final Logger LOG = Loggers.of(AbstractRendezvous.class);

  /** Longer than ranks that are started together usually wait. */
  private static final Duration LONG_WAIT = Duration.ofSeconds(10);

  private final RankInfo rankInfo;
  private final ReentrantLock inUse = new ReentrantLock();
  private int rounds;
  private boolean failed;
  private volatile boolean closed;

  AbstractRendezvous(RankInfo rankInfo) {
    this.rankInfo = rankInfo;
  }

  @Override
  public final int rank() {
    return rankInfo.rank();
  }

  @Override
  public final int size() {
    return rankInfo.size();
  }

  @Override
  public final OptionalInt localRank() {
    return rankInfo.localRank();
  }

  @Override
  public final UniqueId exchange(Supplier<UniqueId> maker) {
    return exchange(maker, RankBackend.UNKNOWN);
  }

  @Override
  public final UniqueId exchange(Backend backend) {
    AtomicReference<UniqueId> created = new AtomicReference<>();
    try {
      return exchange(() -> newId(backend, created), RankBackend.of(backend));
    } catch (RuntimeException | Error e) {
      UniqueId unused = created.get();
      if (unused != null) {
        backend.closeUniqueId(unused);
      }
      throw e;
    }
  }

  private static UniqueId newId(Backend backend, AtomicReference<UniqueId> created) {
    UniqueId id = backend.newUniqueId();
    created.set(id);
    return id;
  }

  final UniqueId exchange(Supplier<UniqueId> maker, RankBackend backend) {
    Objects.requireNonNull(maker, "maker");
    if (inUse.isHeldByCurrentThread() || !inUse.tryLock()) {
      throw new IllegalStateException(this + " is already in an exchange; it allows one at a time");
    }
    try {
      return nextRound(maker, backend);
    } finally {
      inUse.unlock();
    }
  }

  private UniqueId nextRound(Supplier<UniqueId> maker, RankBackend backend) {
    if (closed) {
      throw new IllegalStateException(this + " is closed");
    }
    if (failed) {
      throw new IllegalStateException(
          this + " failed in round " + rounds + "; all ranks must create a new one");
    }
    failed = true;
    rounds++;
    Deadline deadline = Deadline.after(rankInfo.timeout());
    try {
      UniqueId id = rankInfo.rank() == 0 ? make(rounds, maker) : null;
      if (rankInfo.size() > 1) {
        id = exchange(rounds, id, backend, deadline);
      }
      failed = false;
      return id;
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw releasedAfter(new RendezvousException(this + " was interrupted in round " + rounds, e));
    } catch (ExchangeFailedException e) {
      throw releasedAfter(failed(e));
    } catch (RuntimeException | Error e) {
      releasedAfter(e);
      throw e;
    }
  }

  /** Returns the public exception for a failure, with the same message and cause. */
  static RendezvousException failed(ExchangeFailedException failure) {
    Throwable cause = failure.getCause();
    return new RendezvousException(failure.getMessage(), cause == null ? failure : cause);
  }

  /** Publishes the id to the other ranks if it is not null (on rank 0); else receives it. */
  private UniqueId exchange(int round, UniqueId created, RankBackend backend, Deadline deadline)
      throws InterruptedException, ExchangeFailedException {
    Thread reminder = Thread.ofVirtual().start(() -> logLongWait(round, deadline));
    try {
      if (created == null) {
        return follow(round, backend, deadline);
      }
      publish(round, created, backend, deadline);
      return created;
    } finally {
      reminder.interrupt();
    }
  }

  /** Logs once that other ranks are late, so that a waiting program does not look hung. */
  private void logLongWait(int round, Deadline deadline) {
    try {
      Thread.sleep(Math.min(LONG_WAIT.toMillis(), deadline.remainingMillis() / 2));
    } catch (InterruptedException e) {
      // Interrupted by the end of the exchange.
      return;
    }
    LOG.warn(
        "rank {} of {} is still waiting for all ranks in round {}; timeout in {} s: {}",
        rank(),
        size(),
        round,
        TimeUnit.NANOSECONDS.toSeconds(Math.max(0, deadline.remainingNanos())),
        this);
  }

  /** Releases the resources, since no further exchange is allowed; returns the failure. */
  private <T extends Throwable> T releasedAfter(T failure) {
    CloseAll.after(failure, this::release);
    return failure;
  }

  /** Creates the id of a round; called on rank 0. */
  UniqueId make(int round, Supplier<UniqueId> maker) {
    return Objects.requireNonNull(maker.get(), () -> "maker returned null in round " + round);
  }

  /** Throws if another thread has closed this rendezvous; called while an exchange waits. */
  final void checkStillOpen() {
    if (closed) {
      throw new RendezvousException(this + " was closed while it was exchanging an id");
    }
  }

  /**
   * Waits until all other ranks have arrived, sends them the id and returns when they have it;
   * called on rank 0.
   *
   * @throws ExchangeFailedException if a rank uses another backend; it is thrown on every rank then
   */
  abstract void publish(int round, UniqueId id, RankBackend backend, Deadline deadline)
      throws InterruptedException, ExchangeFailedException;

  /** Returns the id that rank 0 published; called on the other ranks. */
  abstract UniqueId follow(int round, RankBackend backend, Deadline deadline)
      throws InterruptedException, ExchangeFailedException;

  @Override
  public final void close() {
    closed = true;
    release();
  }

  /** Releases all resources and wakes waiting threads; idempotent. */
  abstract void release();
}
