package io.nccl4j.rendezvous;

import io.nccl4j.NcclTimeoutException;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.auth.SharedSecret;
import io.nccl4j.internal.rendezvous.ExchangeFailedException;
import io.nccl4j.internal.rendezvous.RankBackend;
import io.nccl4j.internal.rendezvous.Ranks;
import io.nccl4j.internal.rendezvous.tcp.IdClient;
import io.nccl4j.internal.rendezvous.tcp.IdServer;
import io.nccl4j.internal.util.Arguments;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Loggers;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.BitSet;
import java.util.List;
import java.util.Objects;
import org.apache.logging.log4j.Logger;

/**
 * A rendezvous over TCP: rank 0 listens, the other ranks connect, and try again until it does. Rank
 * 0 hands out the id when all have come. If a rank uses another backend, or rank 0 gives up because
 * ranks are missing, the ranks that have come fail within a second, with the reason.
 *
 * <p><b>What the secret protects.</b> Both sides prove that they know it, by HMAC-SHA256 over
 * random numbers that both have just drawn, without ever sending it; so neither a stranger nor a
 * replay of recorded messages gets an id from rank 0 or passes an id to a rank. The id itself
 * travels under AES-256-GCM with a key of that one connection, so listeners do not learn it.
 *
 * <p><b>What it does not protect.</b> Who has the secret can take any rank's place. Who can listen
 * can try out guesses, so the secret must be random; and who learns it later can read recorded
 * exchanges. Who controls the network can prevent the exchange, and sees addresses and timing. What
 * NCCL itself then sends between the hosts is neither authenticated nor encrypted.
 *
 * <p><b>Without a secret</b> there is {@link #onLoopback} alone: nothing is listened to or
 * connected to but this host, and any user of this host can take part. Over a network there is no
 * rendezvous without a secret.
 *
 * <p>Rank 0 attends to each client in a thread of its own and gives it five seconds in all; clients
 * that are malformed, oversized, slow, silent, of another run, size or round, or claim a rank that
 * another has, are answered with a code or dropped, and hinder nobody. At most 64 clients at a time
 * may be connected that have not proved that they know the secret; the system property {@code
 * io.nccl4j.pendingConnections} or the environment variable {@code NCCL4J_PENDING_CONNECTIONS} sets
 * another number. Rank 0 logs at the end of each round how many were turned away, and who and why,
 * without secrets; if ranks are missing, its exception says so too.
 *
 * <p>A rank counts as served when its receipt has come. A rank whose receipt is lost has the id,
 * while rank 0 times out and names it.
 */
public final class TcpRendezvous extends AbstractRendezvous {
  private static final Logger LOG = Loggers.of(TcpRendezvous.class);

  private static final int HIGHEST_PORT = 65535;

  private final String host;
  private final int port;
  private final IdServer server;
  private final IdClient client;

  private TcpRendezvous(
      String host, int port, SharedSecret secret, RankInfo member, IdServer.Limits limits) {
    super(member);
    this.host = host;
    this.server =
        member.rank() == 0 && member.size() > 1
            ? listen(listeningAddress(host, port), member, secret, limits)
            : null;
    this.port = server == null ? port : server.port();
    this.client = new IdClient(host, this.port, member.jobRank(), secret, this::checkStillOpen);
  }

  private static IdServer listen(
      InetSocketAddress address, RankInfo member, SharedSecret secret, IdServer.Limits limits) {
    try {
      return new IdServer(address, member.jobRank(), secret, limits);
    } catch (ExchangeFailedException e) {
      throw failed(e);
    }
  }

  /**
   * {@return a rank's place at rank 0's port} On rank 0 the port is listened to from now until
   * {@link #close}, or until an exchange fails: on the loopback interface if the host is one of its
   * names, else on all interfaces, because the name by which others reach this host need not be one
   * that it knows.
   *
   * @param host the name or address of rank 0's host, the same on every rank
   * @param port 1 to 65535, the same on every rank; rank 0 may give 0 for any free one, which
   *     {@link #port} then tells
   * @param secret what only the ranks of this run know
   * @param member the rank, and what tells the run from others with the same secret
   * @throws IllegalArgumentException if the host is empty or the port out of range
   * @throws RendezvousException if rank 0 cannot listen on the port
   */
  public static TcpRendezvous at(String host, int port, Secret secret, RankInfo member) {
    Objects.requireNonNull(host, "host");
    Objects.requireNonNull(secret, "secret");
    Objects.requireNonNull(member, "member");
    return at(host, port, secret.shared(), member, IdServer.Limits.standard());
  }

  static TcpRendezvous at(
      String host, int port, SharedSecret secret, RankInfo member, IdServer.Limits limits) {
    if (host.isBlank()) {
      throw new IllegalArgumentException("host is empty; it must name the host of rank 0");
    }
    Arguments.inRange(port, "port", member.rank() == 0 ? 0 : 1, HIGHEST_PORT);
    return new TcpRendezvous(host, port, secret, member, limits);
  }

  /**
   * {@return a rank's place at a port of this host's loopback interface, without a secret: any user
   * of this host can take part, or take a rank's place} Rank 0 logs a warning that says so.
   *
   * @param port as for {@link #at(String, int, Secret, RankInfo)}
   * @param member the rank, and what tells the run from others
   * @throws IllegalArgumentException if the port is out of range
   * @throws RendezvousException if rank 0 cannot listen on the port
   */
  public static TcpRendezvous onLoopback(int port, RankInfo member) {
    Objects.requireNonNull(member, "member");
    if (member.rank() == 0) {
      LOG.warn(
          "The ranks meet on this host's port {} without a secret: any user of this host can take"
              + " part. Set {} to prevent that.",
          port,
          Secret.VARIABLE);
    }
    String host = InetAddress.getLoopbackAddress().getHostAddress();
    return at(host, port, SharedSecret.none(), member, IdServer.Limits.standard());
  }

  /** Returns whether a host's name or address means the loopback interface on every host. */
  static boolean isLoopback(String host) {
    if (host.equalsIgnoreCase("localhost")) {
      return true;
    }
    try {
      return InetAddress.ofLiteral(host).isLoopbackAddress();
    } catch (IllegalArgumentException e) {
      // A name, and one that may mean another address on another host.
      return false;
    }
  }

  private static InetSocketAddress listeningAddress(String host, int port) {
    if (!isLoopback(host)) {
      return new InetSocketAddress(port);
    }
    return host.equalsIgnoreCase("localhost")
        ? new InetSocketAddress(InetAddress.getLoopbackAddress(), port)
        : new InetSocketAddress(InetAddress.ofLiteral(host), port);
  }

  /** {@return the host of rank 0, as it was given} */
  public String host() {
    return host;
  }

  /** {@return the port of rank 0; on rank 0, the one that is listened to} */
  public int port() {
    return port;
  }

  /** Returns the ranks that have come in the current round; on rank 0. */
  BitSet arrived() {
    return server.arrived();
  }

  /** Returns the clients turned away in the current round; on rank 0. */
  List<IdServer.Rejection> rejections() {
    return server.rejections();
  }

  @Override
  void publish(int round, UniqueId id, RankBackend backend, Deadline deadline)
      throws InterruptedException, ExchangeFailedException {
    IdServer.Outcome outcome = server.serve(round, id, backend, deadline);
    RankBackend.Mismatch.check(outcome.mismatch());
    BitSet missing = outcome.missing();
    String report = server.report();
    if (missing.isEmpty()) {
      LOG.info("{} served round {} to {} ranks; {}", this, round, size() - 1, report);
      return;
    }
    checkStillOpen();
    throw new NcclTimeoutException(
        "TcpRendezvous.exchange",
        deadline.timeout(),
        "missing "
            + Ranks.text(missing)
            + " of "
            + size()
            + " in round "
            + round
            + " on port "
            + port
            + "; "
            + report);
  }

  @Override
  UniqueId follow(int round, RankBackend backend, Deadline deadline)
      throws InterruptedException, ExchangeFailedException {
    return client.receive(round, backend, deadline);
  }

  @Override
  void release() {
    try {
      client.close();
      if (server != null) {
        server.close();
      }
    } catch (IOException e) {
      throw new RendezvousException(this + " could not be closed: " + e, e);
    }
  }

  @Override
  public String toString() {
    return "TcpRendezvous[rank " + rank() + " of " + size() + " at " + host + ":" + port + "]";
  }
}
