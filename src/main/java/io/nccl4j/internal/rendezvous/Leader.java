package io.nccl4j.internal.rendezvous;

import io.nccl4j.UniqueId;
import io.nccl4j.internal.auth.SharedSecret;
import io.nccl4j.internal.util.Backoff;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Interrupts;
import io.nccl4j.internal.util.Loggers;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.BitSet;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.Predicate;
import java.util.stream.IntStream;
import org.apache.logging.log4j.Logger;

/** The side of rank 0 in a {@link StoreExchange}. */
final class Leader {
  /** First byte of an answer that contains the id. */
  static final byte ID = 0;

  /** First byte of an answer that contains the reason why there is none. */
  private static final byte REASON = 1;

  private static final Logger LOG = Loggers.of(Leader.class);

  /** How long rank 0 waits for ranks that it knows only by processes without the secret. */
  private static final Duration IMPOSTOR_GRACE = Duration.ofMillis(800);

  /** More than between two looks of another rank, whose announcement may have been replaced. */
  private static final Duration SETTLING = Duration.ofMillis(300);

  /** Limits the ranks that hear of a failure, if a rank claims a larger world size. */
  private static final int MAX_TOLD = 1024;

  private final SealedStore store;
  private final Attempt attempt;
  private final UniqueId id;
  private final String place;
  private final int size;
  private final Map<Integer, Peer> peers = new TreeMap<>();
  private int polled;
  private Deadline impostorsOnly;
  private boolean timedOut;
  // Why the round has failed on all ranks; empty as long as it has not.
  private String failure;

  /** What is known of another rank. */
  private static final class Peer {
    // The latest attempt, or null, and why it cannot get the id, or an empty text.
    private Token attempt;
    private String problem = "";
    private boolean unreadable;
    // The latest answer: its token, or null, the attempt, and the reason in it, or an empty text.
    private Token answer;
    private Token answered;
    private String reason;
    private boolean confirmed;
  }

  Leader(SealedStore store, Attempt attempt, UniqueId id, String place) {
    this.store = store;
    this.attempt = attempt;
    this.id = id;
    this.place = place;
    this.size = attempt.self.size();
    this.polled = size;
    this.failure = attempt.failure();
  }

  static String answerKey(int rank) {
    return "answer-" + rank;
  }

  static String receiptKey(int rank) {
    return "receipt-" + rank;
  }

  /** Returns when all ranks have confirmed the id, or as many as possible the failure. */
  void run(Runnable checkStillOpen)
      throws IOException, InterruptedException, ExchangeFailedException {
    boolean failedBefore = !failure.isEmpty();
    try {
      Backoff backoff = Backoff.betweenLooks(attempt.deadline);
      while (failure.isEmpty()) {
        attempt.keepAnnounced(store);
        poll();
        if (failure.isEmpty() && ranksThat(peer -> peer.confirmed).cardinality() == size - 1) {
          LOG.info(
              "rank 0 served round {} to {} ranks at {}{}",
              attempt.round,
              size - 1,
              place,
              store.report());
          return;
        }
        if (failure.isEmpty()) {
          failure = failureNow();
        }
        checkStillOpen.run();
        backoff.pause();
      }
      try {
        tellAll(checkStillOpen);
      } catch (IOException e) {
        // The failure itself matters more.
        LOG.warn("rank 0 could not tell every rank: {}", e.toString());
      }
    } finally {
      Interrupts.defer(this::cleanUp);
    }
    if (timedOut) {
      throw attempt.timedOut(missing() + store.report());
    }
    if (!failedBefore) {
      throw new ExchangeFailedException(failure + store.report());
    }
  }

  private String failureNow() {
    if (!attempt.failure().isEmpty()) {
      return attempt.failure();
    }
    BitSet absent = ranksThat(peer -> peer.attempt == null);
    Map<Integer, String> impostors = store.impostors();
    if (absent.isEmpty() || !absent.stream().allMatch(impostors::containsKey)) {
      impostorsOnly = null;
    } else if (impostorsOnly == null) {
      impostorsOnly = Deadline.after(IMPOSTOR_GRACE);
    } else if (impostorsOnly.passed()) {
      return missing() + "; " + String.join("; ", impostors.values());
    }
    timedOut = attempt.deadline.passed();
    String after = attempt.deadline.timeout().toMillis() / 1000.0 + " s";
    return timedOut ? "it timed out after " + after + "; " + missing() : "";
  }

  /** Tells every rank the reason of the failure, also those that arrive within a short time. */
  private void tellAll(Runnable checkStillOpen) throws IOException, InterruptedException {
    Backoff backoff = Backoff.betweenLooks(Deadline.after(StoreExchange.LINGER));
    Deadline settled = Deadline.after(timedOut ? Duration.ZERO : SETTLING);
    boolean allKnow;
    do {
      attempt.keepAnnounced(store);
      poll();
      checkStillOpen.run();
      Set<Integer> impostors = store.impostors().keySet();
      allKnow =
          IntStream.range(1, polled).allMatch(rank -> knows(peer(rank), impostors.contains(rank)));
    } while (!(allKnow && settled.passed()) && backoff.pause());
  }

  private boolean knows(Peer peer, boolean impostor) {
    return peer.confirmed || (peer.attempt == null && (timedOut || impostor));
  }

  private Peer peer(int rank) {
    return peers.computeIfAbsent(rank, absent -> new Peer());
  }

  private BitSet ranksThat(Predicate<Peer> condition) {
    BitSet found = new BitSet();
    for (int rank = 1; rank < size; rank++) {
      found.set(rank, condition.test(peer(rank)));
    }
    return found;
  }

  /** Reads the values of every rank that has not confirmed, and answers. */
  private void poll() throws IOException {
    for (int rank = 1; rank < polled; rank++) {
      Peer peer = peer(rank);
      if (peer.answer != null && !peer.confirmed) {
        readReceipt(rank, peer);
      }
      // After a failure there may be another process with the rank of one that knows the reason.
      if (!peer.confirmed || !failure.isEmpty()) {
        readAnnouncement(rank, peer);
      }
    }
    boolean all =
        ranksThat(peer -> peer.attempt != null && peer.problem.isEmpty()).cardinality() == size - 1;
    for (int rank = 1; rank < polled; rank++) {
      Peer peer = peer(rank);
      String reason = failure.isEmpty() ? peer.problem : failure;
      if (peer.attempt != null && !peer.confirmed && (all || !reason.isEmpty())) {
        answer(rank, peer, reason);
      }
    }
  }

  private void readReceipt(int rank, Peer peer) throws IOException {
    peer.confirmed =
        store
            .get(receiptKey(rank))
            .filter(receipt -> receipt.answered().equals(peer.answer))
            // A rank without the secret cannot seal the receipt of the reason.
            .filter(receipt -> !peer.reason.isEmpty() || store.open(receipt).isPresent())
            .isPresent();
    if (peer.confirmed && failure.isEmpty()) {
      // Its problem, if it has one, is not that of a process that has ended.
      failure = peer.reason;
    }
  }

  private void readAnnouncement(int rank, Peer peer) throws IOException {
    Optional<SealedStore.Value> found = store.get(Attempt.key(rank));
    peer.unreadable = found.isEmpty() && store.has(Attempt.key(rank));
    if (found.isEmpty() || found.get().token().equals(peer.attempt)) {
      return;
    }
    Optional<Attempt.Announcement> announced =
        store.open(found.get()).flatMap(Attempt.Announcement::of);
    if (announced.isPresent() && announced.get().round() > attempt.round) {
      // It has finished this round, unless it is out of step.
      return;
    }
    peer.attempt = found.get().token();
    peer.confirmed = false;
    peer.problem =
        announced
            .map(announcement -> problem(rank, announcement))
            .orElseGet(
                () ->
                    "rank %d does not know the secret of rank 0, or its announcement in %s is damaged"
                            .formatted(rank, place)
                        + "; check that "
                        + SharedSecret.VARIABLE
                        + " is the same on all ranks");
    polled =
        announced.isEmpty()
            ? polled
            : Math.clamp(announced.get().size(), polled, Math.max(polled, MAX_TOLD));
  }

  /** Returns why a rank cannot be in this round, or an empty text. */
  private String problem(int rank, Attempt.Announcement announced) {
    if (!announced.failure().isEmpty()) {
      return announced.failure();
    }
    if (announced.size() != size) {
      return "rank " + rank + " has world size " + announced.size() + ", rank 0 has " + size;
    }
    if (announced.round() != attempt.round) {
      return "rank %d is in round %d, rank 0 is in round %d"
          .formatted(rank, announced.round(), attempt.round);
    }
    return RankBackend.mismatch(rank, announced.backend(), attempt.backend).orElse("");
  }

  private void answer(int rank, Peer peer, String reason) throws IOException {
    if (peer.attempt.equals(peer.answered) && reason.equals(peer.reason)) {
      return;
    }
    peer.answer = Token.random();
    peer.answered = peer.attempt;
    peer.reason = reason;
    byte[] bytes = reason.isEmpty() ? id.toBytes() : Attempt.bytes(reason);
    ByteBuffer content = ByteBuffer.allocate(1 + bytes.length);
    content.put(reason.isEmpty() ? ID : REASON).put(bytes);
    store.set(answerKey(rank), peer.answer, peer.answered, content.array());
  }

  private void cleanUp() {
    try {
      for (Map.Entry<Integer, Peer> each : peers.entrySet()) {
        if (each.getValue().answer != null) {
          store.delete(answerKey(each.getKey()));
          store.delete(receiptKey(each.getKey()));
        }
      }
      attempt.withdraw(store);
    } catch (IOException e) {
      LOG.debug("rank 0 leaves values in {}: {}", place, e.toString());
    }
  }

  private String missing() {
    BitSet absent = ranksThat(peer -> peer.attempt == null);
    BitSet announced = ranksThat(peer -> peer.attempt != null && !peer.confirmed);
    BitSet unreadable = ranksThat(peer -> peer.unreadable);
    StringBuilder text = new StringBuilder("missing ");
    text.append(Ranks.text(absent.isEmpty() ? announced : absent)).append(" of ").append(size);
    if (!announced.isEmpty()) {
      text.append(" (").append(Ranks.text(announced)).append(" announced, not confirmed)");
    }
    if (!unreadable.isEmpty()) {
      text.append(" (")
          .append(Ranks.text(unreadable))
          .append(" announced by another version of nccl4j, or damaged)");
    }
    text.append(" in round ").append(attempt.round).append(" at ").append(place);
    peers.values().stream()
        .filter(peer -> !peer.confirmed && !peer.problem.isEmpty())
        .forEach(peer -> text.append("; ").append(peer.problem));
    return text.toString();
  }
}
