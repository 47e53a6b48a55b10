package io.nccl4j.internal.rendezvous;

import io.nccl4j.UniqueId;
import io.nccl4j.internal.auth.SharedSecret;
import io.nccl4j.internal.util.Backoff;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Interrupts;
import io.nccl4j.internal.util.Loggers;
import java.io.IOException;
import java.net.ProtocolException;
import java.net.SocketTimeoutException;
import java.nio.file.FileSystemException;
import java.time.Duration;
import java.util.function.Supplier;
import org.apache.logging.log4j.Logger;

/**
 * The exchange of ids through a {@link Store}.
 *
 * <ol>
 *   <li>Each rank announces its {@link Attempt}.
 *   <li>When all ranks have done so and agree with rank 0, rank 0 answers each of them under {@code
 *       answer-R} with the id. The answer names the attempt that it is for.
 *   <li>Each rank confirms its answer under {@code receipt-R}, which names the answer. Rank 0
 *       returns when it has all receipts.
 * </ol>
 *
 * <p>An announcement may be stale, of a process that has died and perhaps been restarted. Each
 * attempt gets its own answer, and ignores answers to other attempts, so no rank uses an id of an
 * earlier run. For the same reason an attempt that does not agree with rank 0 is answered with the
 * reason first, and the round fails on all ranks once that answer has a receipt.
 */
public final class StoreExchange implements IdExchange {
  /** How long a rank waits for others to hear of a failure. */
  static final Duration LINGER = Duration.ofSeconds(1);

  private static final Logger LOG = Loggers.of(StoreExchange.class);

  private final JobRank self;
  private final SharedSecret secret;
  private final String place;
  private final Supplier<Store> stores;
  private final boolean reopens;
  private final Runnable checkStillOpen;
  private volatile Store store;

  /**
   * Creates the side of one rank.
   *
   * @param place describes the store in messages
   * @param stores creates a store for one exchange
   * @param reopens whether a store that has failed may come back, without its values
   * @param checkStillOpen throws if the rendezvous has been closed meanwhile
   */
  public StoreExchange(
      JobRank self,
      SharedSecret secret,
      String place,
      Supplier<Store> stores,
      boolean reopens,
      Runnable checkStillOpen) {
    this.self = self;
    this.secret = secret;
    this.place = place;
    this.stores = stores;
    this.reopens = reopens;
    this.checkStillOpen = checkStillOpen;
  }

  @Override
  public UniqueId exchange(
      int round, RankBackend backend, Supplier<UniqueId> part, Deadline deadline)
      throws InterruptedException, ExchangeFailedException {
    UniqueId id;
    try {
      id = part.get();
    } catch (RuntimeException | Error e) {
      tell(round, backend, e);
      throw e;
    }
    return converse(new Attempt(self, round, backend, "", place, deadline), id);
  }

  /** Tells the other ranks why this one cannot take part. */
  private void tell(int round, RankBackend backend, Throwable failure) {
    String reason = "rank " + self.rank() + " failed before it joined: " + failure;
    try {
      converse(new Attempt(self, round, backend, reason, place, Deadline.after(LINGER)), null);
    } catch (ExchangeFailedException | RuntimeException e) {
      LOG.debug("rank {} could not tell every rank: {}", self.rank(), e.toString());
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  private UniqueId converse(Attempt attempt, UniqueId id)
      throws InterruptedException, ExchangeFailedException {
    Backoff backoff = Backoff.betweenAttempts(attempt.deadline);
    while (true) {
      try (Store opened = stores.get()) {
        store = opened;
        checkStillOpen.run();
        opened.open(attempt.deadline);
        SealedStore sealed = new SealedStore(opened, secret, self.jobId());
        if (self.rank() > 0) {
          return new Follower(sealed, attempt, place).run(checkStillOpen);
        }
        new Leader(sealed, attempt, id, place).run(checkStillOpen);
        return id;
      } catch (IOException e) {
        if (Thread.currentThread().isInterrupted()) {
          throw Interrupts.during("in " + place, e);
        }
        checkStillOpen.run();
        if (!attempt.failure().isEmpty()) {
          throw new ExchangeFailedException(attempt.failure(), e);
        }
        if (e instanceof SocketTimeoutException) {
          throw attempt.timedOut(e.getMessage());
        }
        if (!reopens || e instanceof ProtocolException || attempt.deadline.passed()) {
          throw new ExchangeFailedException(
              place + " failed rank " + self.rank() + ": " + describe(e), e);
        }
        LOG.debug("rank {} opens {} again: {}", self.rank(), place, e.toString());
        backoff.pause();
      }
    }
  }

  /** Many exceptions of files have only the name of the file as their message. */
  private static String describe(IOException e) {
    return e instanceof FileSystemException || e.getMessage() == null
        ? e.toString()
        : e.getMessage();
  }

  /** Ends an exchange in progress in any thread. */
  @Override
  public void close() throws IOException {
    Store opened = store;
    if (opened != null) {
      opened.close();
    }
  }
}
