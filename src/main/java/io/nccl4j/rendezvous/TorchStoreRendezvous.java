package io.nccl4j.rendezvous;

import io.nccl4j.UniqueId;
import io.nccl4j.internal.rendezvous.ExchangeFailedException;
import io.nccl4j.internal.rendezvous.RankBackend;
import io.nccl4j.internal.rendezvous.torch.StoreExchange;
import io.nccl4j.internal.util.Arguments;
import io.nccl4j.internal.util.Deadline;
import java.io.IOException;
import java.util.Objects;
import java.util.Optional;

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
 * <p>Two runs that are alive at once in one store need different {@link RankInfo#jobId} values.
 */
public final class TorchStoreRendezvous extends AbstractRendezvous {
  private static final int HIGHEST_PORT = 65535;
  private final String host;
  private final int port;
  private final StoreExchange exchange;

  private TorchStoreRendezvous(String host, int port, Optional<Secret> secret, RankInfo member) {
    super(member);
    this.host = host;
    this.port = port;
    this.exchange =
        new StoreExchange(
            host, port, secret.map(Secret::shared), member.jobRank(), this::checkStillOpen);
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
      String host, int port, Optional<Secret> secret, RankInfo member) {
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
      throws InterruptedException, ExchangeFailedException {
    exchange.publish(round, id, backend, deadline);
  }

  @Override
  UniqueId follow(int round, RankBackend backend, Deadline deadline)
      throws InterruptedException, ExchangeFailedException {
    return exchange.follow(round, backend, deadline);
  }

  @Override
  void release() {
    try {
      exchange.close();
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
}
