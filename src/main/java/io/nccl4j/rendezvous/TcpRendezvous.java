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
import org.jspecify.annotations.NullMarked;
import org.jspecify.annotations.Nullable;

/**
 * A rendezvous over TCP. Rank 0 listens; the other ranks connect, and retry until it does. Rank 0
 * sends the id when all ranks have arrived. If a rank uses another backend, or rank 0 times out
 * because ranks are missing, the ranks that have arrived fail within a second, with the reason.
 *
 * <p><b>What the secret protects.</b> Both sides prove that they know it by an HMAC-SHA256 over
 * fresh random nonces, without sending it. Neither an unauthenticated client nor a replay of
 * recorded messages can obtain an id from rank 0 or pass an id to a rank. The id is encrypted with
 * AES-256-GCM under a key of that connection, so eavesdroppers do not learn it.
 *
 * <p><b>What it does not protect.</b> Anyone who has the secret can take any rank's place. An
 * eavesdropper can test guesses offline, so the secret must be random; anyone who learns it later
 * can decrypt recorded exchanges. An attacker who controls the network can prevent the exchange,
 * and sees addresses and timing. NCCL's own traffic between the hosts is neither authenticated nor
 * encrypted.
 *
 * <p><b>Without a secret</b> only {@link #onLoopback} is available: it listens on and connects to
 * this host alone, and any user of this host can take part. Over a network a secret is required.
 *
 * <p>Rank 0 serves each client in its own thread, within five seconds in total. Clients that are
 * malformed, oversized, slow or silent, belong to another run, size or round, or claim a rank that
 * another client has, get an error code or are disconnected; they do not affect other clients. At
 * most 64 clients that have not yet proved that they know the secret may be connected at a time;
 * the system property {@code io.nccl4j.pendingConnections} or the environment variable {@code
 * NCCL4J_PENDING_CONNECTIONS} sets another limit. At the end of each round rank 0 logs how many
 * clients it rejected, with their addresses and the reasons, without secrets; if ranks are missing,
 * its exception contains the same.
 *
 * <p>Rank 0 counts a rank as served when it has received that rank's receipt. If the receipt is
 * lost, the rank has the id, while rank 0 times out and names the rank.
 */
@NullMarked
public final class TcpRendezvous extends AbstractRendezvous {
  private static final Logger LOG = Loggers.of(TcpRendezvous.class);

  private static final int HIGHEST_PORT = 65535;

  private final String host;
  private final int port;
  private final @Nullable IdServer server;
  private final IdClient client;

  private TcpRendezvous(
      String host, int port, SharedSecret secret, RankInfo rankInfo, IdServer.Limits limits) {
    super(rankInfo);
    this.host = host;
    this.server =
        rankInfo.rank() == 0 && rankInfo.size() > 1
            ? listen(listeningAddress(host, port), rankInfo, secret, limits)
            : null;
    this.port = server == null ? port : server.port();
    this.client = new IdClient(host, this.port, rankInfo.jobRank(), secret, this::checkStillOpen);
  }

  private static IdServer listen(
      InetSocketAddress address, RankInfo rankInfo, SharedSecret secret, IdServer.Limits limits) {
    try {
      return new IdServer(address, rankInfo.jobRank(), secret, limits);
    } catch (ExchangeFailedException e) {
      throw failed(e);
    }
  }

  /**
   * {@return the rendezvous of one rank at rank 0's port} Rank 0 listens on the port from now until
   * {@link #close}, or until an exchange fails. It listens on the loopback interface if {@code
   * host} is {@code localhost} or a loopback address, else on all interfaces, because the name by
   * which others reach this host may be unknown to the host itself.
   *
   * @param host the name or address of rank 0's host, the same on every rank
   * @param port 1 to 65535, the same on every rank; rank 0 may pass 0 for any free port, which
   *     {@link #port} then returns
   * @param secret known only to the ranks of this run
   * @param rankInfo the rank; its job id separates this run from others with the same secret
   * @throws IllegalArgumentException if the host is empty or the port out of range
   * @throws RendezvousException if rank 0 cannot listen on the port
   */
  public static TcpRendezvous at(String host, int port, Secret secret, RankInfo rankInfo) {
    Objects.requireNonNull(host, "host");
    Objects.requireNonNull(secret, "secret");
    Objects.requireNonNull(rankInfo, "rankInfo");
    return at(host, port, secret.shared(), rankInfo, IdServer.Limits.standard());
  }

  static TcpRendezvous at(
      String host, int port, SharedSecret secret, RankInfo rankInfo, IdServer.Limits limits) {
    if (host.isBlank()) {
      throw new IllegalArgumentException("host is empty; it must name the host of rank 0");
    }
    Arguments.inRange(port, "port", rankInfo.rank() == 0 ? 0 : 1, HIGHEST_PORT);
    return new TcpRendezvous(host, port, secret, rankInfo, limits);
  }

  /**
   * {@return the rendezvous of one rank at a port of this host's loopback interface, without a
   * secret} Any user of this host can take part, or take a rank's place; rank 0 logs a warning.
   *
   * @param port as for {@link #at(String, int, Secret, RankInfo)}
   * @param rankInfo the rank; its job id separates this run from others
   * @throws IllegalArgumentException if the port is out of range
   * @throws RendezvousException if rank 0 cannot listen on the port
   */
  public static TcpRendezvous onLoopback(int port, RankInfo rankInfo) {
    Objects.requireNonNull(rankInfo, "rankInfo");
    if (rankInfo.rank() == 0) {
      LOG.warn(
          "Rendezvous on this host's port {} without a secret: any user of this host can take part."
              + " Set {} to prevent that.",
          port,
          Secret.VARIABLE);
    }
    String host = InetAddress.getLoopbackAddress().getHostAddress();
    return at(host, port, SharedSecret.none(), rankInfo, IdServer.Limits.standard());
  }

  /** Returns whether a host name or address denotes the loopback interface on every host. */
  static boolean isLoopback(String host) {
    if (host.equalsIgnoreCase("localhost")) {
      return true;
    }
    try {
      return InetAddress.ofLiteral(host).isLoopbackAddress();
    } catch (IllegalArgumentException e) {
      // A name that may resolve to different addresses on different hosts.
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

  /** {@return the host of rank 0, as passed by the caller} */
  public String host() {
    return host;
  }

  /** {@return the port of rank 0; on rank 0, the port it listens on} */
  public int port() {
    return port;
  }

  private IdServer server() {
    return Objects.requireNonNull(server, "only rank 0 listens");
  }

  /** Returns the ranks that have arrived in the current round; on rank 0. */
  BitSet arrived() {
    return server().arrived();
  }

  /** Returns the clients rejected in the current round; on rank 0. */
  List<IdServer.Rejection> rejections() {
    return server().rejections();
  }

  @Override
  void publish(int round, UniqueId id, RankBackend backend, Deadline deadline)
      throws InterruptedException, ExchangeFailedException {
    IdServer listening = server();
    IdServer.Outcome outcome = listening.serve(round, id, backend, deadline);
    RankBackend.Mismatch.check(outcome.mismatch());
    BitSet missing = outcome.missing();
    String report = listening.report();
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
