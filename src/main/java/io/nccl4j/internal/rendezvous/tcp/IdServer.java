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
 * Rank 0's side over TCP. Listens from construction until close. Each client has its own virtual
 * thread and deadline, so no client waits for another. {@link PendingConnections} bounds the number
 * of unauthenticated clients; an honest client authenticates within one round trip.
 */
public final class IdServer implements Closeable {
  private static final Logger LOG = Loggers.of(IdServer.class);

  private static final int BACKLOG = 1024;
  private static final int MAX_RECORDED = 100;

  /** Keeps an answer below the longest that a client accepts. */
  private static final int MAX_DETAIL_BYTES = 900;

  private static final Duration CLOSE_TIMEOUT = Duration.ofSeconds(1);
  private static final Duration ACCEPT_RETRY_DELAY = Duration.ofMillis(50);

  /** First byte of an answer: the rest is the code of a rejection, in plaintext. */
  public static final int PLAIN = 0;

  /** First byte of an answer: the rest is sealed. */
  public static final int SEALED = 1;

  /**
   * First byte of a sealed answer that contains the id; otherwise it is the code of a rejection.
   */
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
  // All fields below are guarded by the lock.
  private final PendingConnections<SocketChannel> pending;
  private final Set<SocketChannel> evicted = new HashSet<>();
  private final List<Rejection> rejections = new ArrayList<>();
  private long rejectionCount;
  private int roundNumber;
  private Round current;
  private boolean closed;

  /**
   * Limits for clients.
   *
   * @param handshake the maximum duration of one connection
   * @param pending the maximum number of unauthenticated clients
   * @param grace how long an unauthenticated client is protected from eviction in favor of another
   */
  public record Limits(Duration handshake, int pending, Duration grace) {
    public static Limits standard() {
      return new Limits(
          Duration.ofSeconds(5), PendingConnections.limit(), PendingConnections.GRACE);
    }
  }

  /** A client that was rejected. */
  public record Rejection(String client, RejectReason reason, String detail) {
    @Override
    public String toString() {
      return client + " " + reason.text() + " (" + detail + ")";
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
      BitSet arrived = new BitSet();
      instances.keySet().forEach(arrived::set);
      return arrived;
    }

    /** Returns the ranks that have not arrived or, if all have, those without a receipt. */
    private BitSet missing() {
      BitSet arrived = arrived();
      boolean all = arrived.cardinality() == jobRank.size() - 1;
      return Ranks.missing(all ? confirmed : arrived, jobRank.size());
    }

    private String missingText() {
      return "missing " + Ranks.text(missing()) + " of " + jobRank.size();
    }
  }

  /**
   * The result of a round on rank 0.
   *
   * @param missing the ranks that have not arrived or, if all have, those without a receipt
   * @param mismatch set if ranks use different backends, and no rank may have the id
   */
  public record Outcome(BitSet missing, Optional<RankBackend.Mismatch> mismatch) {}

  /**
   * Starts listening.
   *
   * @throws ExchangeFailedException if it cannot listen on the address
   */
  public IdServer(InetSocketAddress address, JobRank jobRank, SharedSecret secret, Limits limits)
      throws ExchangeFailedException {
    this.jobRank = jobRank;
    this.jobId = Token.ofText(jobRank.jobId());
    this.secret = secret;
    this.limits = limits;
    this.pending = new PendingConnections<>(limits.pending(), limits.grace());
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

  /** Returns the clients rejected since the last report, at most 100. */
  public List<Rejection> rejections() {
    lock.lock();
    try {
      return List.copyOf(rejections);
    } finally {
      lock.unlock();
    }
  }

  /**
   * Serves one round until every rank has confirmed the id, the deadline passes, or ranks are found
   * to use different backends. If the round fails, the ranks that have arrived get the reason; if
   * backends differ, so do those that arrive within {@link ExchangeFailedException#FAILURE_LINGER}.
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
        round.failure = "it timed out after " + seconds(deadline) + "; " + round.missingText();
        changed.signalAll();
      }
      if (round.failure != null) {
        int ranks = mismatch.isPresent() ? jobRank.size() - 1 : round.instances.size();
        await(Deadline.after(ExchangeFailedException.FAILURE_LINGER), () -> round.endedFor(ranks));
      }
      return new Outcome(round.missing(), mismatch);
    } finally {
      current = null;
      changed.signalAll();
      lock.unlock();
    }
  }

  /** Waits, with the lock held, for the condition, the deadline, or the close. */
  private void await(Deadline deadline, BooleanSupplier condition) throws InterruptedException {
    while (!condition.getAsBoolean() && !closed && !deadline.passed()) {
      changed.awaitNanos(deadline.remainingNanos());
    }
  }

  private static String seconds(Deadline deadline) {
    return deadline.timeout().toMillis() / 1000.0 + " s";
  }

  /** Returns the ranks that have arrived in the current round. */
  public BitSet arrived() {
    lock.lock();
    try {
      return current == null ? new BitSet() : current.arrived();
    } finally {
      lock.unlock();
    }
  }

  /** Describes the clients rejected since the last call, and clears the list. */
  public String report() {
    lock.lock();
    try {
      if (rejectionCount == 0) {
        return "no client was rejected";
      }
      StringBuilder text = new StringBuilder("rejected " + rejectionCount + " clients: ");
      text.append(String.join("; ", rejections.stream().limit(8).map(Object::toString).toList()));
      if (rejectionCount > 8) {
        text.append("; and ").append(rejectionCount - 8).append(" more");
      }
      rejectionCount = 0;
      rejections.clear();
      return text.toString();
    } finally {
      lock.unlock();
    }
  }

  private void acceptAll() {
    while (listener.isOpen()) {
      try {
        awaitSlot();
        admit(listener.accept());
      } catch (Throwable e) {
        // A failure of one client must not end this thread, on which all ranks depend.
        if (listener.isOpen()) {
          recoverFrom(e);
        }
      }
    }
  }

  private void awaitSlot() {
    lock.lock();
    try {
      long nanos = pending.nanosUntilRoom();
      while (nanos > 0 && !closed) {
        changed.awaitNanos(nanos);
        nanos = pending.nanosUntilRoom();
      }
    } catch (InterruptedException e) {
      throw new IllegalStateException("the accepting thread is never interrupted", e);
    } finally {
      lock.unlock();
    }
  }

  /** Continues after a failure, such as no free file descriptors, by evicting the oldest client. */
  private void recoverFrom(Throwable failure) {
    try {
      evictOldest();
      pauseAfterFailure();
      // After the eviction, since a logger may need a file descriptor too.
      warn("accept", failure);
    } catch (OutOfMemoryError shortage) {
      // No memory for the message either; there may be some for the next client.
      CloseAll.suppress(failure, shortage);
    }
  }

  private void warn(String action, Throwable failure) {
    failedClients.log(LOG, "rank 0 could not " + action + " a client: " + failure);
  }

  private static void pauseAfterFailure() {
    try {
      TimeUnit.NANOSECONDS.sleep(ACCEPT_RETRY_DELAY.toNanos());
    } catch (InterruptedException e) {
      throw new IllegalStateException("the accepting thread is never interrupted", e);
    }
  }

  private void admit(SocketChannel client) {
    boolean started = false;
    try {
      lock.lock();
      try {
        if (pending.full()) {
          evictOldest();
        }
        pending.add(client);
      } finally {
        lock.unlock();
      }
      Thread.ofVirtual().name("nccl4j-rendezvous-client").start(() -> serve(client));
      started = true;
    } finally {
      if (!started) {
        release(client);
      }
    }
  }

  private void evictOldest() {
    lock.lock();
    try {
      SocketChannel oldest = pending.removeOldest();
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

  /** Serves one client until its connection ends. */
  private void serve(SocketChannel client) {
    String name = name(client);
    try (FramedConnection frames =
        new FramedConnection(client, Deadline.after(limits.handshake()))) {
      try {
        converse(client, frames);
      } catch (RejectedException e) {
        recordRejection(name, e.reason(), e.detail());
        sendLast(frames, name, new byte[] {PLAIN, (byte) e.reason().code()});
      } catch (SocketTimeoutException e) {
        String limit = limits.handshake().toMillis() / 1000.0 + " s";
        recordRejection(name, RejectReason.TOO_SLOW, "its message was not complete after " + limit);
        sendLast(frames, name, new byte[] {PLAIN, (byte) RejectReason.TOO_SLOW.code()});
      }
    } catch (IOException e) {
      recordDisconnected(client, name, e);
    } catch (RuntimeException | Error e) {
      // For example out of memory; the client will retry.
      warn("serve", e);
    } finally {
      release(client);
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
    authenticated(client);
    Handshake.Claim claim = handshake.claim();
    Round round;
    try {
      round = grant(claim);
    } catch (RejectedException e) {
      answerRejected(client, frames, handshake, e);
      if (e.reason() == RejectReason.ROUND_FAILED) {
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

  private void answerRejected(
      SocketChannel client,
      FramedConnection frames,
      Handshake handshake,
      RejectedException rejected) {
    if (!rejected.reason().benign()) {
      recordRejection(name(client), rejected.reason(), rejected.detail());
    }
    byte[] detail = rejected.detail().getBytes(StandardCharsets.UTF_8);
    int length = Math.min(detail.length, MAX_DETAIL_BYTES);
    byte[] answer =
        ByteBuffer.allocate(1 + length)
            .put((byte) rejected.reason().code())
            .put(detail, 0, length)
            .array();
    sendLast(frames, name(client), prefixed(handshake.seal(answer)));
  }

  /** Sends a client the reason of its rejection, which is already recorded. */
  private static void sendLast(FramedConnection frames, String client, byte[] message) {
    try {
      frames.writeLast(message);
    } catch (IOException e) {
      LOG.debug("{} did not wait for the reason of its rejection: {}", client, e.toString());
    }
  }

  private static byte[] prefixed(byte[] sealed) {
    return ByteBuffer.allocate(1 + sealed.length).put((byte) SEALED).put(sealed).array();
  }

  /** Waits until all ranks have arrived; returns the round whose id the client may have. */
  private Round grant(Handshake.Claim claim) throws RejectedException {
    lock.lock();
    try {
      checkRank(claim);
      Round round = current;
      if (claim.round() > roundNumber || (claim.round() == roundNumber && round == null)) {
        throw new RejectedException(
            RejectReason.ROUND_TO_COME,
            "it is in round " + claim.round() + ", which rank 0 has not reached");
      }
      if (claim.round() < roundNumber) {
        throw new RejectedException(
            RejectReason.ROUND_PAST,
            "it is in round " + claim.round() + ", rank 0 is in round " + roundNumber);
      }
      Token first = round.instances.putIfAbsent(claim.rank(), claim.instance());
      if (first != null && !first.equals(claim.instance())) {
        throw new RejectedException(
            RejectReason.DUPLICATE_RANK, "rank " + claim.rank() + " has already arrived");
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

  /**
   * Waits for the round's decision, but not long: the client retries, so connections stay short.
   */
  private void awaitDecision(Round round) throws RejectedException {
    Deadline limit = Deadline.after(limits.handshake().dividedBy(4));
    try {
      await(limit, () -> round.decided() || current != round);
    } catch (InterruptedException e) {
      throw new IllegalStateException("a client's thread is never interrupted", e);
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
          RejectReason.WRONG_RUN, "rank " + claim.rank() + " of a run other than rank 0's");
    }
    if (claim.size() != jobRank.size()) {
      throw new RejectedException(
          RejectReason.WRONG_SIZE,
          "rank "
              + claim.rank()
              + " has world size "
              + claim.size()
              + ", rank 0 has "
              + jobRank.size());
    }
    if (claim.rank() < 1 || claim.rank() >= jobRank.size()) {
      throw new RejectedException(
          RejectReason.WRONG_RANK,
          "it claims rank " + claim.rank() + "; clients are ranks 1 to " + (jobRank.size() - 1));
    }
  }

  private void authenticated(SocketChannel client) {
    lock.lock();
    try {
      pending.remove(client);
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

  private void recordDisconnected(SocketChannel client, String name, IOException cause) {
    lock.lock();
    try {
      if (closed) {
        return;
      }
      boolean dropped = evicted.contains(client);
      recordRejection(
          name,
          dropped ? RejectReason.TOO_MANY : RejectReason.LEFT,
          cause instanceof EOFException || dropped ? "before it was served" : cause.toString());
    } finally {
      lock.unlock();
    }
  }

  private void recordRejection(String client, RejectReason reason, String detail) {
    lock.lock();
    try {
      Rejection entry = new Rejection(client, reason, detail);
      LOG.debug("rank 0 rejected {}", entry);
      rejectionCount++;
      if (rejections.size() < MAX_RECORDED) {
        rejections.add(entry);
      }
    } finally {
      lock.unlock();
    }
  }

  private void release(SocketChannel client) {
    lock.lock();
    try {
      pending.remove(client);
      evicted.remove(client);
      changed.signalAll();
      client.close();
    } catch (IOException e) {
      LOG.warn("rank 0 could not close a client's connection: {}", e.toString());
    } finally {
      lock.unlock();
    }
  }

  /** Stops listening, disconnects unauthenticated clients, and wakes the waiting rank 0. */
  @Override
  public void close() throws IOException {
    lock.lock();
    try {
      closed = true;
      changed.signalAll();
      listener.close();
      for (SocketChannel client : pending.all()) {
        client.close();
      }
    } finally {
      lock.unlock();
    }
    awaitPortFree();
  }

  /** Waits for the accepting thread to end, after which the port is free. */
  private void awaitPortFree() {
    try {
      if (!acceptor.join(CLOSE_TIMEOUT)) {
        LOG.warn("port {} of rank 0 is closed, but not yet free", port);
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      LOG.debug("interrupted while waiting for the port of rank 0 to become free");
    }
  }
}
