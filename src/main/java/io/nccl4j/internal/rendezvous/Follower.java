package io.nccl4j.internal.rendezvous;

import io.nccl4j.UniqueId;
import io.nccl4j.internal.auth.SharedSecret;
import io.nccl4j.internal.util.Backoff;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Interrupts;
import io.nccl4j.internal.util.Loggers;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.BitSet;
import java.util.Optional;
import org.apache.logging.log4j.Logger;

/** The side of a rank other than 0 in a {@link StoreExchange}. */
final class Follower {
  private static final Logger LOG = Loggers.of(Follower.class);

  private final SealedStore store;
  private final Attempt attempt;
  private final int rank;
  private final String place;

  Follower(SealedStore store, Attempt attempt, String place) {
    this.store = store;
    this.attempt = attempt;
    this.rank = attempt.self.rank();
    this.place = place;
  }

  UniqueId run(Runnable checkStillOpen)
      throws IOException, InterruptedException, ExchangeFailedException {
    // Rank 0 began to wait at about the same time; at the end it tells which ranks are missing.
    Deadline end = Deadline.after(attempt.deadline.remaining().plus(StoreExchange.LINGER));
    Backoff backoff = Backoff.betweenAttempts(end);
    boolean answered = false;
    try {
      while (true) {
        String before = attempt.failure();
        attempt.keepAnnounced(store);
        if (!attempt.failure().equals(before)) {
          end = Deadline.after(StoreExchange.LINGER);
          backoff = Backoff.betweenAttempts(end);
        }
        Optional<SealedStore.Value> answer =
            store
                .get(Leader.answerKey(rank))
                .filter(found -> found.answered().equals(attempt.token()));
        if (answer.isPresent()) {
          answered = true;
          confirm(answer.get());
          return taken(answer.get());
        }
        checkStillOpen.run();
        if (end.passed()) {
          throw failed();
        }
        backoff.pause();
      }
    } finally {
      if (!answered) {
        withdraw();
      }
    }
  }

  private void withdraw() {
    Interrupts.defer(
        () -> {
          try {
            attempt.withdraw(store);
          } catch (IOException e) {
            LOG.debug("rank {} leaves its announcement in {}: {}", rank, place, e.toString());
          }
        });
  }

  /** Withdraws the announcement, and sends the receipt, after which rank 0 may close its store. */
  private void confirm(SealedStore.Value answer) {
    withdraw();
    try {
      store.set(Leader.receiptKey(rank), Token.random(), answer.token(), new byte[0]);
    } catch (IOException e) {
      LOG.debug("rank {} could not send its receipt to {}: {}", rank, place, e.toString());
    }
  }

  private UniqueId taken(SealedStore.Value answer) throws ExchangeFailedException {
    ByteBuffer content =
        store
            .open(answer)
            .filter(ByteBuffer::hasRemaining)
            .orElseThrow(
                () ->
                    new ExchangeFailedException(
                        "the answer of rank 0 in "
                            + place
                            + " was not sealed with the secret of rank "
                            + rank
                            + "; check that "
                            + SharedSecret.VARIABLE
                            + " is the same on all ranks"));
    if (content.get() != Leader.ID) {
      throw new ExchangeFailedException(
          "rank 0 at " + place + " has ended the exchange: " + Attempt.text(content));
    }
    byte[] id = new byte[content.remaining()];
    content.get(id);
    try {
      return UniqueId.of(id);
    } catch (IllegalArgumentException e) {
      throw new ExchangeFailedException("rank 0 has put an invalid unique id into " + place, e);
    }
  }

  /** Returns the exception if no answer has come in time. */
  private ExchangeFailedException failed() throws IOException {
    if (!attempt.failure().isEmpty()) {
      return new ExchangeFailedException(attempt.failure());
    }
    BitSet absent = new BitSet();
    for (int each = 0; each < attempt.self.size(); each++) {
      absent.set(each, !store.has(Attempt.key(each)));
    }
    throw attempt.timedOut(
        "rank 0 has not published round "
            + attempt.round
            + " in "
            + place
            + (absent.isEmpty() ? "" : "; no announcement of " + Ranks.text(absent))
            + store.report());
  }
}
