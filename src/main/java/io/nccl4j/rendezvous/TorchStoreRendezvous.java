package io.nccl4j.rendezvous;

import io.nccl4j.NcclTimeoutException;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.util.Arguments;
import io.nccl4j.internal.util.Backoff;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Interrupts;
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
 * A rendezvous through a TCP store of PyTorch ({@code c10d::TCPStore}, from PyTorch 2.5 on), such
 * as the one that torchrun's agent keeps at {@code MASTER_ADDR} and {@code MASTER_PORT}. All ranks
 * are clients of it; nothing is listened to.
 *
 * <p><b>Protocol.</b> In each round, every rank but 0 announces itself with a random token of this
 * one attempt and its backend, and waits for a value whose name has that token. When all have, rank
 * 0 answers every announcement, also a later one of the same rank, with the id, and returns when
 * each rank's last one has a receipt. If a rank uses another backend, and has sent a receipt of the
 * answer that says so, every rank gets that answer instead. What was left in the store by ranks
 * that were restarted, under whatever number of restarts, so never gives an id. What a round leaves
 * is an empty value for each rank; if it fails, what it wrote.
 *
 * <p><b>Who may read along.</b> The store asks nobody who they are: as for PyTorch itself, whoever
 * reaches its port can disturb a run and, without a secret, read its ids or pass others. With a
 * {@link Secret} the id travels under AES-256-GCM, with a key of that one attempt: a rank takes an
 * id only from a rank 0 that knows the secret.
 *
 * <p>Two runs that are alive at once in one store need different {@link Member#run} values.
 */
public final class TorchStoreRendezvous extends OrderedRendezvous {
  private static final int HIGHEST_PORT = 65535;
  private static final byte[] NOTHING = {};

  /** Of the protocol; an announcement begins with it. */
  private static final int VERSION = 2;

  private static final int ANNOUNCEMENT_BYTES = Integer.BYTES + Token.BYTES + Integer.BYTES;
  private static final int BODY_BYTES = UniqueId.BYTES + RankBackend.Mismatch.BYTES;

  private final String host;
  private final int port;
  private final Optional<Secret> secret;
  private volatile TorchStore store;

  private TorchStoreRendezvous(String host, int port, Optional<Secret> secret, Member member) {
    super(member);
    this.host = host;
    this.port = port;
    this.secret = secret;
  }

  /**
   * {@return a rank's place in a store} It connects for each exchange, and holds nothing open
   * between them.
   *
   * @param host the name or address of the host that has the store
   * @param port the port of the store, 1 to 65535
   * @param secret what only the ranks of this run know, the same on all of them; empty to trust
   *     whoever reaches the store
   * @param member the rank, and what tells the run from others in the same store
   * @throws IllegalArgumentException if the host is empty or the port out of range
   */
  public static TorchStoreRendezvous at(
      String host, int port, Optional<Secret> secret, Member member) {
    Objects.requireNonNull(host, "host");
    Objects.requireNonNull(secret, "secret");
    Objects.requireNonNull(member, "member");
    if (host.isBlank()) {
      throw new IllegalArgumentException("host is empty; it must name the host of the store");
    }
    Arguments.inRange(port, "port", 1, HIGHEST_PORT);
    return new TorchStoreRendezvous(host, port, secret, member);
  }

  /** {@return the host of the store, as it was given} */
  public String host() {
    return host;
  }

  /** {@return the port of the store} */
  public int port() {
    return port;
  }

  @Override
  void publish(int round, UniqueId id, RankBackend backend, Deadline deadline)
      throws InterruptedException {
    Publisher publisher = new Publisher(round, id, backend);
    converse(
        deadline,
        connected -> {
          publisher.serve(connected, deadline);
          publisher.checkMismatch();
          return id;
        },
        publisher::missing);
  }

  @Override
  UniqueId follow(int round, RankBackend backend, Deadline deadline) throws InterruptedException {
    Names names = new Names(round);
    Token attempt = Token.random();
    return converse(
        deadline,
        connected -> {
          connected.set(names.announcement(rank()), announcement(attempt, backend));
          connected.await(names.answer(attempt));
          ByteBuffer answer = opened(names, attempt, connected.get(names.answer(attempt)));
          byte[] id = new byte[UniqueId.BYTES];
          answer.get(id);
          Optional<RankBackend.Mismatch> mismatch = RankBackend.Mismatch.read(answer);
          connected.set(names.receipt(attempt), bytes(attempt));
          // Not deleted: rank 0 may be about to get it, and not every store bears that.
          connected.set(names.announcement(rank()), NOTHING);
          connected.ping();
          if (mismatch.isPresent()) {
            throw mismatch.get().failure();
          }
          return parsed(id);
        },
        () -> "rank 0 has not published round " + round + " in " + place());
  }

  private UniqueId parsed(byte[] id) {
    try {
      return UniqueId.of(id);
    } catch (IllegalArgumentException e) {
      throw new RendezvousException("rank 0 has put no unique id into " + place(), e);
    }
  }

  private String place() {
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
    UniqueId with(TorchStore connected) throws IOException, InterruptedException;
  }

  private UniqueId converse(
      Deadline deadline, Conversation conversation, Supplier<String> waitedFor)
      throws InterruptedException {
    boolean connected = false;
    try (TorchStore current = new TorchStore(host, port, deadline)) {
      store = current;
      checkStillOpen();
      current.connect();
      connected = true;
      return conversation.with(current);
    } catch (IOException e) {
      if (Thread.currentThread().isInterrupted()) {
        throw Interrupts.during("on a connection", e);
      }
      checkStillOpen();
      if (e instanceof SocketTimeoutException) {
        String late = connected ? waitedFor.get() : e.getMessage();
        throw new NcclTimeoutException("TorchStoreRendezvous.exchange", deadline.timeout(), late);
      }
      throw new RendezvousException(place() + " failed rank " + rank() + ": " + e.getMessage(), e);
    }
  }

  /**
   * Returns an answer to one attempt: rank 0's token of this answer, the id, and why no rank may
   * use it, if ranks have different backends.
   */
  private byte[] closed(
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

  private ByteBuffer opened(Names names, Token attempt, byte[] answered) {
    boolean sealed = answered.length > Token.BYTES + BODY_BYTES;
    if (answered.length < Token.BYTES + BODY_BYTES || sealed != secret.isPresent()) {
      throw new RendezvousException(
          "rank 0 has put %d bytes into %s, which %s: is %s the same on all ranks?"
              .formatted(
                  answered.length,
                  place(),
                  sealed ? "rank " + rank() + " cannot open" : "are no sealed id",
                  Secret.VARIABLE));
    }
    byte[] body = Arrays.copyOfRange(answered, Token.BYTES, answered.length);
    return ByteBuffer.wrap(
        secret
            .map(
                known -> unseal(known, names, attempt, Token.read(ByteBuffer.wrap(answered)), body))
            .orElse(body));
  }

  private byte[] unseal(Secret known, Names names, Token attempt, Token answer, byte[] body) {
    byte[] context = context(names, attempt, answer);
    try {
      return known.cipher(context).open(body, context);
    } catch (AEADBadTagException e) {
      throw new RendezvousException(
          "what is in " + place() + " was not sealed with the secret of rank " + rank(), e);
    }
  }

  private static byte[] seal(Secret known, byte[] context, byte[] body) {
    return known.cipher(context).seal(body, context);
  }

  private static byte[] context(Names names, Token attempt, Token answer) {
    return (names.answer(attempt) + " " + answer.toHex()).getBytes(StandardCharsets.US_ASCII);
  }

  @Override
  void release() {
    TorchStore current = store;
    if (current == null) {
      return;
    }
    try {
      current.close();
    } catch (IOException e) {
      throw new RendezvousException(this + " could not be closed: " + e, e);
    }
  }

  @Override
  public String toString() {
    return "TorchStoreRendezvous[rank "
        + rank()
        + " of "
        + size()
        + " at "
        + host
        + ":"
        + port
        + "]";
  }

  /** What the values of one round are called. */
  private final class Names {
    private final String prefix;

    private Names(int round) {
      String run = Token.ofText(member().run()).toHex();
      prefix = "nccl4j/%s/%d ranks/round %d/".formatted(run, size(), round);
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
    private final Token[] seen = new Token[size()];
    private final Token[] answered = new Token[size()];
    private final RankBackend[] backends = new RankBackend[size()];
    private final BitSet confirmed = new BitSet();
    private final BitSet otherForms = new BitSet();

    private Publisher(int round, UniqueId id, RankBackend backend) {
      this.names = new Names(round);
      this.id = id;
      this.round = round;
      backends[0] = backend;
    }

    private void serve(TorchStore connected, Deadline deadline)
        throws IOException, InterruptedException {
      Backoff backoff = Backoff.betweenLooks(deadline);
      Deadline end = deadline;
      Optional<RankBackend.Mismatch> mismatch = Optional.empty();
      while (!look(connected)) {
        if (mismatch.isEmpty()) {
          mismatch = confirmedMismatch();
          end = mismatch.isPresent() ? deadline.orAfter(IdServer.LONGEST_FAREWELL) : deadline;
        }
        if (end.passed()) {
          if (mismatch.isPresent()) {
            throw mismatch.get().failure();
          }
          throw new SocketTimeoutException(missing());
        }
        backoff.pause();
      }
    }

    /** Looks once at every rank that is missing, and answers; returns whether none is missing. */
    private boolean look(TorchStore connected) throws IOException {
      for (int rank = 1; rank < size(); rank++) {
        if (!confirmed.get(rank)) {
          look(connected, rank);
        }
      }
      Optional<RankBackend.Mismatch> mismatch = RankBackend.mismatch(backends);
      boolean all = Arrays.stream(seen).skip(1).allMatch(Objects::nonNull);
      // An announcement may be of a rank that was restarted since; a receipt shows that it is not.
      boolean sure = mismatch.isEmpty() ? all : confirmed.get(mismatch.get().rank());
      for (int rank = 1; rank < size(); rank++) {
        if (sure || (mismatch.isPresent() && mismatch.get().rank() == rank)) {
          answer(connected, rank, mismatch);
        }
      }
      return confirmed.cardinality() == size() - 1;
    }

    private void look(TorchStore connected, int rank) throws IOException {
      if (answered[rank] != null && connected.has(names.receipt(answered[rank]))) {
        connected.delete(names.receipt(answered[rank]));
        connected.delete(names.answer(answered[rank]));
        confirmed.set(rank);
      } else if (connected.has(names.announcement(rank))) {
        byte[] announced = connected.get(names.announcement(rank));
        ByteBuffer bytes = ByteBuffer.wrap(announced);
        boolean known = announced.length == ANNOUNCEMENT_BYTES && bytes.getInt() == VERSION;
        // What an exchange that has ended left is empty. Another form may be of a rank that was
        // restarted since, so it is named only when the time is up.
        otherForms.set(rank, announced.length > 0 && !known);
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
        connected.set(names.answer(attempt), closed(names, attempt, id, mismatch));
      }
    }

    private Optional<RankBackend.Mismatch> confirmedMismatch() {
      return RankBackend.mismatch(backends).filter(found -> confirmed.get(found.rank()));
    }

    private void checkMismatch() {
      Optional<RankBackend.Mismatch> mismatch = confirmedMismatch();
      if (mismatch.isPresent()) {
        throw mismatch.get().failure();
      }
    }

    private String missing() {
      BitSet unconfirmed = Ranks.missing(confirmed, size());
      BitSet announced = new BitSet();
      unconfirmed.stream().filter(rank -> seen[rank] != null).forEach(announced::set);
      BitSet absent = (BitSet) unconfirmed.clone();
      absent.andNot(announced);
      String text =
          "missing " + Ranks.text(absent.isEmpty() ? unconfirmed : absent) + " of " + size();
      return text
          + (announced.isEmpty() ? "" : " (" + Ranks.text(announced) + " announced, not confirmed)")
          + (otherForms.isEmpty()
              ? ""
              : " ("
                  + Ranks.text(otherForms)
                  + " announced in the form of another version of nccl4j)")
          + " in round "
          + round
          + " at "
          + place();
    }
  }
}
