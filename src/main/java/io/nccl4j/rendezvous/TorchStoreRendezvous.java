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
import org.jspecify.annotations.NullMarked;

/**
 * A rendezvous through a PyTorch TCP store ({@code c10d::TCPStore}, PyTorch 2.5 or later), such as
 * the one of torchrun's agent at {@code MASTER_ADDR} and {@code MASTER_PORT}. All ranks are clients
 * of the store; no rank listens.
 *
 * <p><b>Protocol.</b> In each round, every rank except 0 writes an announcement with its backend
 * and a random token of this attempt, and waits for a value whose key contains that token. When all
 * ranks have announced themselves, rank 0 answers every announcement with the id, including later
 * announcements of the same rank, and returns when each rank's latest answer has a receipt. If a
 * rank uses another backend, rank 0 answers it first; once that answer has a receipt, every rank
 * gets an answer that reports the mismatch. Values left in the store by ranks that were restarted
 * therefore never provide an id. A round leaves an empty value for each rank in the store; a failed
 * round leaves all values it wrote.
 *
 * <p><b>Security.</b> The store has no authentication: as with PyTorch itself, anyone who can reach
 * its port can disturb a run and, without a secret, read its ids or inject others. With a {@link
 * Secret} the id is encrypted with AES-256-GCM under a key of that attempt, and a rank accepts an
 * id only from a rank 0 that knows the secret.
 *
 * <p>Two runs that use one store at the same time need different {@link RankInfo#jobId} values.
 */
@NullMarked
public final class TorchStoreRendezvous extends AbstractRendezvous {
  private static final int HIGHEST_PORT = 65535;
  private final String host;
  private final int port;
  private final StoreExchange exchange;

  private TorchStoreRendezvous(String host, int port, Optional<Secret> secret, RankInfo rankInfo) {
    super(rankInfo);
    this.host = host;
    this.port = port;
    this.exchange =
        new StoreExchange(
            host, port, secret.map(Secret::shared), rankInfo.jobRank(), this::checkStillOpen);
  }

  /**
   * {@return the rendezvous of one rank in a store} It connects for each exchange, and holds no
   * resources in between.
   *
   * @param host the name or address of the store's host
   * @param port the port of the store, 1 to 65535
   * @param secret known only to the ranks of this run, the same on all of them; empty to trust
   *     everyone who can reach the store
   * @param rankInfo the rank; its job id separates this run from others in the same store
   * @throws IllegalArgumentException if the host is empty or the port out of range
   */
  public static TorchStoreRendezvous at(
      String host, int port, Optional<Secret> secret, RankInfo rankInfo) {
    Objects.requireNonNull(host, "host");
    Objects.requireNonNull(secret, "secret");
    Objects.requireNonNull(rankInfo, "rankInfo");
    if (host.isBlank()) {
      throw new IllegalArgumentException("host is empty; it must name the host of the store");
    }
    Arguments.inRange(port, "port", 1, HIGHEST_PORT);
    return new TorchStoreRendezvous(host, port, secret, rankInfo);
  }

  /** {@return the host of the store, as passed by the caller} */
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
