package io.nccl4j.internal.rendezvous.torch;

import io.nccl4j.NcclTimeoutException;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.auth.SharedSecret;
import io.nccl4j.internal.rendezvous.ExchangeFailedException;
import io.nccl4j.internal.rendezvous.JobRank;
import io.nccl4j.internal.rendezvous.RankBackend;
import io.nccl4j.internal.rendezvous.Ranks;
import io.nccl4j.internal.rendezvous.Token;
import io.nccl4j.internal.util.Backoff;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Interrupts;
import java.io.Closeable;
import java.io.IOException;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Objects;
import java.util.Optional;
import java.util.function.Supplier;
import javax.crypto.AEADBadTagException;

/**
 * One rank's side of the store protocol described in {@code TorchStoreRendezvous}. Connects for
 * each round, and holds no resources in between.
 */
public final class StoreExchange implements Closeable {
  private static final byte[] NOTHING = {};

  /** The protocol version, with which an announcement begins. */
  private static final int VERSION = 2;

  private static final int ANNOUNCEMENT_BYTES = Integer.BYTES + Token.BYTES + Integer.BYTES;
  private static final int BODY_BYTES = UniqueId.BYTES + RankBackend.Mismatch.BYTES;

  private final String host;
  private final int port;
  private final Optional<SharedSecret> secret;
  private final JobRank self;
  private final Runnable checkStillOpen;
  private volatile TorchStore store;

  /**
   * Creates the side of one rank.
   *
   * @param secret seals the ids; empty to trust everyone who can reach the store
   * @param checkStillOpen throws if the rendezvous has been closed meanwhile
   */
  public StoreExchange(
      String host, int port, Optional<SharedSecret> secret, JobRank self, Runnable checkStillOpen) {
    this.host = host;
    this.port = port;
    this.secret = secret;
    this.self = self;
    this.checkStillOpen = checkStillOpen;
  }

  /**
   * Publishes the id of a round and returns when all ranks have sent receipts; called on rank 0.
   */
  public void publish(int round, UniqueId id, RankBackend backend, Deadline deadline)
      throws InterruptedException, ExchangeFailedException {
    Publisher publisher = new Publisher(round, id, backend);
    converse(
        deadline,
        connected -> {
          publisher.serve(connected, deadline);
          RankBackend.Mismatch.check(publisher.confirmedMismatch());
          return id;
        },
        publisher::missing);
  }

  /** Returns the id of a round; called on all ranks except 0. */
  public UniqueId follow(int round, RankBackend backend, Deadline deadline)
      throws InterruptedException, ExchangeFailedException {
    Names names = new Names(round);
    Token attempt = Token.random();
    return converse(
        deadline,
        connected -> {
          connected.set(names.announcement(self.rank()), announcement(attempt, backend));
          connected.await(names.answer(attempt));
          ByteBuffer answer = opened(names, attempt, connected.get(names.answer(attempt)));
          byte[] id = new byte[UniqueId.BYTES];
          answer.get(id);
          Optional<RankBackend.Mismatch> mismatch = RankBackend.Mismatch.read(answer);
          connected.set(names.receipt(attempt), bytes(attempt));
          // Not deleted: rank 0 may be about to read it, which some stores do not tolerate.
          connected.set(names.announcement(self.rank()), NOTHING);
          connected.ping();
          RankBackend.Mismatch.check(mismatch);
          return parsed(id);
        },
        () -> "rank 0 has not published round " + round + " in " + address());
  }

  private UniqueId parsed(byte[] id) throws ExchangeFailedException {
    try {
      return UniqueId.of(id);
    } catch (IllegalArgumentException e) {
      throw new ExchangeFailedException("rank 0 has put an invalid unique id into " + address(), e);
    }
  }

  private String address() {
    return "the store at " + host + ":" + port;
  }

  private static byte[] bytes(Token token) {
    ByteBuffer bytes = ByteBuffer.allocate(Token.BYTES);
    token.write(bytes);
    return bytes.array();
  }

  private static byte[] announcement(Token attempt, RankBackend backend) {
    ByteBuffer bytes = ByteBuffer.allocate(ANNOUNCEMENT_BYTES).putInt(VERSION);
    attempt.write(bytes);
    return bytes.putInt(backend.code()).array();
  }

  @FunctionalInterface
  private interface Conversation {
    UniqueId with(TorchStore connected)
        throws IOException, InterruptedException, ExchangeFailedException;
  }

  private UniqueId converse(Deadline deadline, Conversation conversation, Supplier<String> awaited)
      throws InterruptedException, ExchangeFailedException {
    boolean connected = false;
    try (TorchStore current = new TorchStore(host, port, deadline)) {
      store = current;
      checkStillOpen.run();
      current.connect();
      connected = true;
      return conversation.with(current);
    } catch (IOException e) {
      if (Thread.currentThread().isInterrupted()) {
        throw Interrupts.during("on a connection", e);
      }
      checkStillOpen.run();
      if (e instanceof SocketTimeoutException) {
        String problem = connected ? awaited.get() : e.getMessage();
        throw new NcclTimeoutException(
            "TorchStoreRendezvous.exchange", deadline.timeout(), problem);
      }
      throw new ExchangeFailedException(
          address() + " failed rank " + self.rank() + ": " + e.getMessage(), e);
    }
  }

  /**
   * Returns the answer to one attempt: a random token, the id, and the mismatch if ranks have
   * different backends.
   */
  private byte[] encoded(
      Names names, Token attempt, UniqueId id, Optional<RankBackend.Mismatch> mismatch) {
    Token answer = Token.random();
    ByteBuffer plain = ByteBuffer.allocate(BODY_BYTES).put(id.toBytes());
    RankBackend.Mismatch.write(mismatch, plain);
    byte[] body =
        secret
            .map(known -> seal(known, context(names, attempt, answer), plain.array()))
            .orElseGet(plain::array);
    return ByteBuffer.allocate(Token.BYTES + body.length).put(bytes(answer)).put(body).array();
  }

  private ByteBuffer opened(Names names, Token attempt, byte[] answered)
      throws ExchangeFailedException {
    boolean sealed = answered.length > Token.BYTES + BODY_BYTES;
    if (answered.length < Token.BYTES + BODY_BYTES || sealed != secret.isPresent()) {
      throw new ExchangeFailedException(
          "rank 0 has put %d bytes into %s, which %s; check that %s is the same on all ranks"
              .formatted(
                  answered.length,
                  address(),
                  sealed ? "rank " + self.rank() + " cannot decrypt" : "are not a sealed id",
                  SharedSecret.VARIABLE));
    }
    byte[] body = Arrays.copyOfRange(answered, Token.BYTES, answered.length);
    return ByteBuffer.wrap(
        sealed
            ? unseal(secret.get(), names, attempt, Token.read(ByteBuffer.wrap(answered)), body)
            : body);
  }

  private byte[] unseal(SharedSecret known, Names names, Token attempt, Token answer, byte[] body)
      throws ExchangeFailedException {
    byte[] context = context(names, attempt, answer);
    try {
      return known.cipher(context).open(body, context);
    } catch (AEADBadTagException e) {
      throw new ExchangeFailedException(
          "the id in " + address() + " was not sealed with the secret of rank " + self.rank(), e);
    }
  }

  private static byte[] seal(SharedSecret known, byte[] context, byte[] body) {
    return known.cipher(context).seal(body, context);
  }

  private static byte[] context(Names names, Token attempt, Token answer) {
    return (names.answer(attempt) + " " + answer.toHex()).getBytes(StandardCharsets.US_ASCII);
  }

  /** Ends an exchange in progress in any thread. */
  @Override
  public void close() throws IOException {
    TorchStore current = store;
    if (current != null) {
      current.close();
    }
  }

  /** The keys of one round. */
  private final class Names {
    private final String prefix;

    private Names(int round) {
      String job = Token.ofText(self.jobId()).toHex();
      prefix = "nccl4j/%s/%d ranks/round %d/".formatted(job, self.size(), round);
    }

    private String announcement(int rank) {
      return prefix + "rank " + rank;
    }

    private String answer(Token attempt) {
      return prefix + "answer to " + attempt.toHex();
    }

    private String receipt(Token attempt) {
      return prefix + "receipt of " + attempt.toHex();
    }
  }

  /** Rank 0's side of one round. */
  private final class Publisher {
    private final Names names;
    private final UniqueId id;
    private final int round;
    private final Token[] seen = new Token[self.size()];
    private final Token[] answered = new Token[self.size()];
    private final RankBackend[] backends = new RankBackend[self.size()];
    private final BitSet confirmed = new BitSet();
    private final BitSet otherVersions = new BitSet();

    private Publisher(int round, UniqueId id, RankBackend backend) {
      this.names = new Names(round);
      this.id = id;
      this.round = round;
      backends[0] = backend;
    }

    private void serve(TorchStore connected, Deadline deadline)
        throws IOException, InterruptedException, ExchangeFailedException {
      Backoff backoff = Backoff.betweenLooks(deadline);
      Deadline end = deadline;
      Optional<RankBackend.Mismatch> mismatch = Optional.empty();
      while (!poll(connected)) {
        if (mismatch.isEmpty()) {
          mismatch = confirmedMismatch();
          end =
              mismatch.isPresent()
                  ? deadline.orAfter(ExchangeFailedException.FAILURE_LINGER)
                  : deadline;
        }
        if (end.passed()) {
          RankBackend.Mismatch.check(mismatch);
          throw new SocketTimeoutException(missing());
        }
        backoff.pause();
      }
    }

    /** Polls every missing rank once, and answers; returns whether no rank is missing. */
    private boolean poll(TorchStore connected) throws IOException {
      for (int rank = 1; rank < self.size(); rank++) {
        if (!confirmed.get(rank)) {
          poll(connected, rank);
        }
      }
      Optional<RankBackend.Mismatch> mismatch = RankBackend.mismatch(backends);
      boolean all = Arrays.stream(seen).skip(1).allMatch(Objects::nonNull);
      // An announcement may be stale, of a rank restarted since; a receipt shows that it is not.
      boolean decided = mismatch.isEmpty() ? all : confirmed.get(mismatch.get().rank());
      for (int rank = 1; rank < self.size(); rank++) {
        if (decided || (mismatch.isPresent() && mismatch.get().rank() == rank)) {
          answer(connected, rank, mismatch);
        }
      }
      return confirmed.cardinality() == self.size() - 1;
    }

    private void poll(TorchStore connected, int rank) throws IOException {
      if (answered[rank] != null && connected.has(names.receipt(answered[rank]))) {
        connected.delete(names.receipt(answered[rank]));
        connected.delete(names.answer(answered[rank]));
        confirmed.set(rank);
      } else if (connected.has(names.announcement(rank))) {
        byte[] announced = connected.get(names.announcement(rank));
        ByteBuffer bytes = ByteBuffer.wrap(announced);
        boolean known = announced.length == ANNOUNCEMENT_BYTES && bytes.getInt() == VERSION;
        // A finished exchange leaves an empty value. Another version may be of a rank restarted
        // since, so it is reported only at the deadline.
        otherVersions.set(rank, announced.length > 0 && !known);
        if (known) {
          seen[rank] = Token.read(bytes);
          backends[rank] = RankBackend.ofCode(bytes.getInt());
        }
      }
    }

    private void answer(TorchStore connected, int rank, Optional<RankBackend.Mismatch> mismatch)
        throws IOException {
      Token attempt = seen[rank];
      if (attempt != null && !confirmed.get(rank) && !attempt.equals(answered[rank])) {
        answered[rank] = attempt;
        connected.set(names.answer(attempt), encoded(names, attempt, id, mismatch));
      }
    }

    private Optional<RankBackend.Mismatch> confirmedMismatch() {
      return RankBackend.mismatch(backends).filter(found -> confirmed.get(found.rank()));
    }

    private String missing() {
      BitSet unconfirmed = Ranks.missing(confirmed, self.size());
      BitSet announced = new BitSet();
      unconfirmed.stream().filter(rank -> seen[rank] != null).forEach(announced::set);
      BitSet absent = (BitSet) unconfirmed.clone();
      absent.andNot(announced);
      String text =
          "missing " + Ranks.text(absent.isEmpty() ? unconfirmed : absent) + " of " + self.size();
      return text
          + (announced.isEmpty() ? "" : " (" + Ranks.text(announced) + " announced, not confirmed)")
          + (otherVersions.isEmpty()
              ? ""
              : " (" + Ranks.text(otherVersions) + " announced by another version of nccl4j)")
          + " in round "
          + round
          + " at "
          + address();
    }
  }
}
