package io.nccl4j.internal.rendezvous.tcp;

import io.nccl4j.UniqueId;
import io.nccl4j.internal.auth.PendingConnections;
import io.nccl4j.internal.auth.SharedSecret;
import io.nccl4j.internal.rendezvous.ExchangeFailedException;
import io.nccl4j.internal.rendezvous.JobRank;
import io.nccl4j.internal.rendezvous.RankBackend;
import io.nccl4j.internal.rendezvous.Ranks;
import io.nccl4j.internal.rendezvous.Token;
import io.nccl4j.internal.util.CloseAll;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Loggers;
import io.nccl4j.internal.util.RateLimitedWarning;
import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;
import org.apache.logging.log4j.Logger;

/**
 * Rank 0's side over TCP. It listens from its making to its close; each client has a virtual thread
 * and a deadline of its own, so none waits for another. {@link PendingConnections} bounds how many
 * there are that have not proved themselves: an honest client needs one round trip for that.
 */
public final class IdServer implements Closeable {
  private static final Logger LOG = Loggers.of(IdServer.class);

  private static final int BACKLOG = 1024;
  private static final int MOST_NOTED = 100;

  /** Fits with all else into the longest answer that a client takes. */
  private static final int MOST_DETAIL_BYTES = 900;

  private static final Duration LONGEST_CLOSE = Duration.ofSeconds(1);
  private static final Duration AFTER_FAILED_ACCEPT = Duration.ofMillis(50);

  /** First byte of an answer: the rest is the code of a refusal, in clear. */
  public static final int PLAIN = 0;

  /** First byte of an answer: the rest is sealed. */
  public static final int SEALED = 1;

  /** First byte of a sealed answer that holds the id; otherwise it is the code of a refusal. */
  public static final int GRANTED = 0;

  private final JobRank jobRank;
  private final Token jobId;
  private final SharedSecret secret;
  private final Limits limits;
  private final ServerSocketChannel listener;
  private final int port;
  private final Thread acceptor;
  private final RateLimitedWarning failedClients = new RateLimitedWarning();

  private final ReentrantLock lock = new ReentrantLock();
  private final Condition changed = lock.newCondition();
  // All below is guarded by the lock.
  private final PendingConnections<SocketChannel> unproved;
  private final Set<SocketChannel> evicted = new HashSet<>();
  private final List<Rejection> rejections = new ArrayList<>();
  private long turnedAwayCount;
  private int roundNumber;
  private Round current;
  private boolean closed;

  /**
   * How much clients may ask of rank 0.
   *
   * @param handshake the longest that one connection may last
   * @param unproved how many clients at most may be connected before they have proved themselves
   * @param grace how long each of those is safe from being dropped for another
   */
  public record Limits(Duration handshake, int unproved, Duration grace) {
    public static Limits standard() {
      return new Limits(
          Duration.ofSeconds(5), PendingConnections.limit(), PendingConnections.GRACE);
    }
  }

  /** One client that got no id. */
  public record Rejection(String client, RejectReason refusal, String detail) {
    @Override
    public String toString() {
      return client + " " + refusal.text() + " (" + detail + ")";
    }
  }

  private final class Round {
    private final UniqueId id;
    private final Map<Integer, Token> instances = new HashMap<>();
    private final RankBackend[] backends = new RankBackend[jobRank.size()];
    private final BitSet confirmed = new BitSet();
    private final BitSet notified = new BitSet();
    private String failure;

    private Round(UniqueId id, RankBackend backend) {
      this.id = id;
      backends[0] = backend;
    }

    private boolean decided() {
      return failure != null || instances.size() == jobRank.size() - 1;
    }

    private boolean endedFor(int ranks) {
      return confirmed.cardinality() + notified.cardinality() >= ranks;
    }

    private BitSet arrived() {
      BitSet come = new BitSet();
      instances.keySet().forEach(come::set);
      return come;
    }

    /** Returns the ranks that have not come or, if all have, those that do not have the id. */
    private BitSet missing() {
      BitSet come = arrived();
      boolean all = come.cardinality() == jobRank.size() - 1;
      return Ranks.missing(all ? confirmed : come, jobRank.size());
    }

    private String missingText() {
      return "missing " + Ranks.text(missing()) + " of " + jobRank.size();
    }
  }

  /**
   * How a round ended on rank 0.
   *
   * @param missing the ranks that have not come or, if all have, those that do not have the id
   * @param mismatch why no rank may have it, if ranks use different backends
   */
  public record Outcome(BitSet missing, Optional<RankBackend.Mismatch> mismatch) {}

  /**
   * Listens.
   *
   * @throws ExchangeFailedException if it cannot listen there
   */
  public IdServer(InetSocketAddress address, JobRank member, SharedSecret secret, Limits limits)
      throws ExchangeFailedException {
    this.jobRank = member;
    this.jobId = Token.ofText(member.jobId());
    this.secret = secret;
    this.limits = limits;
    this.unproved = new PendingConnections<>(limits.unproved(), limits.grace());
    this.listener = listen(address);
    this.port = listener.socket().getLocalPort();
    this.acceptor = Thread.ofVirtual().name("nccl4j-rendezvous-accept").unstarted(this::acceptAll);
    acceptor.start();
  }

  private static ServerSocketChannel listen(InetSocketAddress address)
      throws ExchangeFailedException {
    ServerSocketChannel channel = null;
    try {
      channel = ServerSocketChannel.open();
      channel.bind(address, BACKLOG);
      return channel;
    } catch (IOException e) {
      ExchangeFailedException failure =
          new ExchangeFailedException(
              "rank 0 cannot listen on " + address + ": " + e.getMessage(), e);
      if (channel != null) {
        closeQuietly(channel, failure);
      }
      throw failure;
    }
  }

  private static void closeQuietly(Closeable channel, Exception failure) {
    try {
      channel.close();
    } catch (IOException e) {
      CloseAll.suppress(failure, e);
    }
  }

  public int port() {
    return port;
  }

  /** Returns the clients turned away so far, but no more than the first hundred of each round. */
  public List<Rejection> rejections() {
    lock.lock();
    try {
      return List.copyOf(rejections);
    } finally {
      lock.unlock();
    }
  }

  /**
   * Serves one round until each rank has confirmed that it has the id, or the deadline passes, or
   * ranks turn out to use different backends. If the round fails, the answer to each rank says why:
   * to those that have come and, if backends differ, to those that come soon.
   */
  public Outcome serve(int number, UniqueId id, RankBackend backend, Deadline deadline)
      throws InterruptedException {
    lock.lockInterruptibly();
    try {
      Round round = new Round(id, backend);
      roundNumber = number;
      current = round;
      await(deadline, () -> round.failure != null || round.endedFor(jobRank.size() - 1));
      Optional<RankBackend.Mismatch> mismatch = RankBackend.mismatch(round.backends);
      if (!round.decided()) {
        round.failure = "it gave up after " + seconds(deadline) + "; " + round.missingText();
        changed.signalAll();
      }
      if (round.failure != null) {
        int ranks = mismatch.isPresent() ? jobRank.size() - 1 : round.instances.size();
        await(
            Deadline.after(ExchangeFailedException.LONGEST_FAREWELL), () -> round.endedFor(ranks));
      }
      return new Outcome(round.missing(), mismatch);
    } finally {
      current = null;
      changed.signalAll();
      lock.unlock();
    }
  }

  /** Waits, with the lock held, until something has happened, the deadline passes, or the close. */
  private void await(Deadline deadline, BooleanSupplier happened) throws InterruptedException {
    while (!happened.getAsBoolean() && !closed && !deadline.passed()) {
      changed.awaitNanos(deadline.remainingNanos());
    }
  }

  private static String seconds(Deadline deadline) {
    return deadline.timeout().toMillis() / 1000.0 + " s";
  }

  /** Returns the ranks that have come in the current round. */
  public BitSet arrived() {
    lock.lock();
    try {
      return current == null ? new BitSet() : current.arrived();
    } finally {
      lock.unlock();
    }
  }

  /** Describes the clients turned away since the last call, and forgets them. */
  public String report() {
    lock.lock();
    try {
      if (turnedAwayCount == 0) {
        return "no client was turned away";
      }
      StringBuilder text = new StringBuilder("turned away " + turnedAwayCount + " clients: ");
      text.append(String.join("; ", rejections.stream().limit(8).map(Object::toString).toList()));
      if (turnedAwayCount > 8) {
        text.append("; and ").append(turnedAwayCount - 8).append(" more");
      }
      turnedAwayCount = 0;
      rejections.clear();
      return text.toString();
    } finally {
      lock.unlock();
    }
  }

  private void acceptAll() {
    while (listener.isOpen()) {
      try {
        awaitRoom();
        admit(listener.accept());
      } catch (Throwable e) {
        // The other ranks depend on this thread, whatever has failed for one client.
        if (listener.isOpen()) {
          survive(e);
        }
      }
    }
  }

  private void awaitRoom() {
    lock.lock();
    try {
      long nanos = unproved.nanosUntilRoom();
      while (nanos > 0 && !closed) {
        changed.awaitNanos(nanos);
        nanos = unproved.nanosUntilRoom();
      }
    } catch (InterruptedException e) {
      throw new IllegalStateException("nobody interrupts the accepting thread", e);
    } finally {
      lock.unlock();
    }
  }

  /** Goes on after a failure, such as no file descriptors left: the oldest client's is freed. */
  private void survive(Throwable failure) {
    try {
      evictOldest();
      pauseAfterFailure();
      // Not before: a logger may need a file descriptor too.
      warn("accept", failure);
    } catch (OutOfMemoryError shortage) {
      // There is no memory for the message either; the next client may find some.
      CloseAll.suppress(failure, shortage);
    }
  }

  private void warn(String what, Throwable failure) {
    failedClients.log(LOG, "rank 0 could not " + what + " a client: " + failure);
  }

  private static void pauseAfterFailure() {
    try {
      TimeUnit.NANOSECONDS.sleep(AFTER_FAILED_ACCEPT.toNanos());
    } catch (InterruptedException e) {
      throw new IllegalStateException("nobody interrupts the accepting thread", e);
    }
  }

  private void admit(SocketChannel client) {
    boolean attended = false;
    try {
      lock.lock();
      try {
        if (unproved.full()) {
          evictOldest();
        }
        unproved.add(client);
      } finally {
        lock.unlock();
      }
      Thread.ofVirtual().name("nccl4j-rendezvous-client").start(() -> serve(client));
      attended = true;
    } finally {
      if (!attended) {
        forget(client);
      }
    }
  }

  private void evictOldest() {
    lock.lock();
    try {
      SocketChannel oldest = unproved.removeOldest();
      if (oldest != null) {
        evicted.add(oldest);
        oldest.close();
      }
    } catch (IOException e) {
      LOG.warn("rank 0 could not close a client's connection: {}", e.toString());
    } finally {
      lock.unlock();
    }
  }

  /** Serves one client from its greeting to its end. */
  private void serve(SocketChannel client) {
    String name = name(client);
    try (FramedConnection frames =
        new FramedConnection(client, Deadline.after(limits.handshake()))) {
      try {
        converse(client, frames);
      } catch (RejectedException e) {
        note(name, e.refusal(), e.detail());
        sayLast(frames, name, new byte[] {PLAIN, (byte) e.refusal().code()});
      } catch (SocketTimeoutException e) {
        String limit = limits.handshake().toMillis() / 1000.0 + " s";
        note(name, RejectReason.TOO_SLOW, "its message was not complete after " + limit);
        sayLast(frames, name, new byte[] {PLAIN, (byte) RejectReason.TOO_SLOW.code()});
      }
    } catch (IOException e) {
      noteDisconnected(client, name, e);
    } catch (RuntimeException | Error e) {
      // Such as no memory left; the client asks again.
      warn("serve", e);
    } finally {
      forget(client);
    }
  }

  private static String name(SocketChannel client) {
    InetAddress address = client.socket().getInetAddress();
    return address == null
        ? "a client"
        : address.getHostAddress() + ":" + client.socket().getPort();
  }

  private void converse(SocketChannel client, FramedConnection frames) throws IOException {
    byte[] greeting = Handshake.greeting();
    frames.write(greeting);
    byte[] message = frames.read(Handshake.CLAIM_BYTES);
    Handshake handshake = Handshake.ofServer(secret, greeting, message);
    proved(client);
    Handshake.Claim claim = handshake.claim();
    Round round;
    try {
      round = grant(claim);
    } catch (RejectedException e) {
      answerRefused(client, frames, handshake, e);
      if (e.refusal() == RejectReason.ROUND_FAILED) {
        notified(claim.rank());
      }
      return;
    }
    ByteBuffer answer = ByteBuffer.allocate(1 + UniqueId.BYTES);
    answer.put((byte) GRANTED).put(round.id.toBytes());
    byte[] sealed = handshake.seal(answer.array());
    frames.write(prefixed(sealed));
    byte[] receipt = frames.read(Handshake.PROOF_BYTES);
    if (!handshake.isReceipt(receipt, sealed)) {
      throw new RejectedException(RejectReason.NOT_AUTHENTIC, "its receipt is wrong");
    }
    confirm(round, claim.rank());
  }

  private void answerRefused(
      SocketChannel client,
      FramedConnection frames,
      Handshake handshake,
      RejectedException refused) {
    if (!refused.refusal().blameless()) {
      note(name(client), refused.refusal(), refused.detail());
    }
    byte[] detail = refused.detail().getBytes(StandardCharsets.UTF_8);
    int length = Math.min(detail.length, MOST_DETAIL_BYTES);
    byte[] answer =
        ByteBuffer.allocate(1 + length)
            .put((byte) refused.refusal().code())
            .put(detail, 0, length)
            .array();
    sayLast(frames, name(client), prefixed(handshake.seal(answer)));
  }

  /** Sends a client the reason why it is turned away, which has been noted already. */
  private static void sayLast(FramedConnection frames, String client, byte[] message) {
    try {
      frames.writeLast(message);
    } catch (IOException e) {
      LOG.debug("{} did not wait for the reason why it was turned away: {}", client, e.toString());
    }
  }

  private static byte[] prefixed(byte[] sealed) {
    return ByteBuffer.allocate(1 + sealed.length).put((byte) SEALED).put(sealed).array();
  }

  /** Returns the round whose id the client may have, when all ranks have come. */
  private Round grant(Handshake.Claim claim) throws RejectedException {
    lock.lock();
    try {
      checkRank(claim);
      Round round = current;
      if (claim.round() > roundNumber || (claim.round() == roundNumber && round == null)) {
        throw new RejectedException(
            RejectReason.ROUND_TO_COME,
            "it is in round " + claim.round() + ", rank 0 is not there yet");
      }
      if (claim.round() < roundNumber) {
        throw new RejectedException(
            RejectReason.ROUND_PAST,
            "it is in round " + claim.round() + ", rank 0 in round " + roundNumber);
      }
      Token first = round.instances.putIfAbsent(claim.rank(), claim.instance());
      if (first != null && !first.equals(claim.instance())) {
        throw new RejectedException(
            RejectReason.DUPLICATE_RANK, "rank " + claim.rank() + " has come before");
      }
      round.backends[claim.rank()] = claim.backend();
      if (round.failure == null) {
        round.failure = RankBackend.mismatch(round.backends).map(Object::toString).orElse(null);
      }
      changed.signalAll();
      awaitDecision(round);
      return round;
    } finally {
      lock.unlock();
    }
  }

  /** Holds a client for a while; after that it comes again, so that no connection lasts long. */
  private void awaitDecision(Round round) throws RejectedException {
    Deadline turn = Deadline.after(limits.handshake().dividedBy(4));
    try {
      await(turn, () -> round.decided() || current != round);
    } catch (InterruptedException e) {
      throw new IllegalStateException("nobody interrupts the thread of a client", e);
    }
    if (round.failure != null) {
      throw new RejectedException(RejectReason.ROUND_FAILED, round.failure);
    }
    if (!round.decided()) {
      throw new RejectedException(RejectReason.OTHERS_MISSING, round.missingText());
    }
  }

  private void checkRank(Handshake.Claim claim) throws RejectedException {
    if (!claim.jobId().equals(jobId)) {
      throw new RejectedException(
          RejectReason.WRONG_RUN, "as rank " + claim.rank() + " of a run that is not rank 0's");
    }
    if (claim.size() != jobRank.size()) {
      throw new RejectedException(
          RejectReason.WRONG_SIZE,
          "rank "
              + claim.rank()
              + " has world size "
              + claim.size()
              + ", rank 0 "
              + jobRank.size());
    }
    if (claim.rank() < 1 || claim.rank() >= jobRank.size()) {
      throw new RejectedException(
          RejectReason.WRONG_RANK,
          "it claims rank " + claim.rank() + "; clients are ranks 1 to " + (jobRank.size() - 1));
    }
  }

  private void proved(SocketChannel client) {
    lock.lock();
    try {
      unproved.remove(client);
      changed.signalAll();
    } finally {
      lock.unlock();
    }
  }

  private void notified(int rank) {
    lock.lock();
    try {
      if (current != null) {
        current.notified.set(rank);
        changed.signalAll();
      }
    } finally {
      lock.unlock();
    }
  }

  private void confirm(Round round, int rank) {
    lock.lock();
    try {
      round.confirmed.set(rank);
      changed.signalAll();
    } finally {
      lock.unlock();
    }
  }

  private void noteDisconnected(SocketChannel client, String name, IOException cause) {
    lock.lock();
    try {
      if (closed) {
        return;
      }
      boolean dropped = evicted.contains(client);
      note(
          name,
          dropped ? RejectReason.TOO_MANY : RejectReason.LEFT,
          cause instanceof EOFException || dropped ? "before it was served" : cause.toString());
    } finally {
      lock.unlock();
    }
  }

  private void note(String client, RejectReason refusal, String detail) {
    lock.lock();
    try {
      Rejection entry = new Rejection(client, refusal, detail);
      LOG.debug("rank 0 turned away {}", entry);
      turnedAwayCount++;
      if (rejections.size() < MOST_NOTED) {
        rejections.add(entry);
      }
    } finally {
      lock.unlock();
    }
  }

  private void forget(SocketChannel client) {
    lock.lock();
    try {
      unproved.remove(client);
      evicted.remove(client);
      changed.signalAll();
      client.close();
    } catch (IOException e) {
      LOG.warn("rank 0 could not close a client's connection: {}", e.toString());
    } finally {
      lock.unlock();
    }
  }

  /**
   * Stops listening, drops clients that have not proved themselves, and wakes the waiting rank 0.
   */
  @Override
  public void close() throws IOException {
    lock.lock();
    try {
      closed = true;
      changed.signalAll();
      listener.close();
      for (SocketChannel client : unproved.all()) {
        client.close();
      }
    } finally {
      lock.unlock();
    }
    awaitPortFree();
  }

  /** The port is free when the accepting thread has let go of it. */
  private void awaitPortFree() {
    try {
      if (!acceptor.join(LONGEST_CLOSE)) {
        LOG.warn("the port {} of rank 0 is closed, but not yet free", port);
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      LOG.debug("interrupted, so not waiting for the port of rank 0 to be free");
    }
  }
}
