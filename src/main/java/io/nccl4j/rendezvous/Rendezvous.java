package io.nccl4j.rendezvous;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.UniqueId;
import java.nio.file.Path;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.function.Function;
import java.util.function.Supplier;
import org.jspecify.annotations.NullMarked;

/**
 * Exchanges unique ids among the ranks of a run: rank 0 creates an id, and every rank gets it. Each
 * rank has its own instance.
 *
 * {@snippet :
 * try (Backend backend = Backend.auto();
 *     Rendezvous rendezvous = LaunchEnvironment.current().rendezvous(Duration.ofMinutes(2));
 *     Communicator communicator =
 *         rendezvous.newCommunicator(backend, CommunicatorConfig.defaults())) {
 *   train(communicator);
 * }
 * }
 *
 * <p>Each call of {@code exchange} is one round. All ranks make the same number of calls; the n-th
 * call returns the same id on every rank, and each round returns a different id. Several
 * communicators are created by several rounds, one after the other. After a failed round the ranks
 * may be in different rounds: the rendezvous stops listening and rejects further calls, and all
 * ranks must create a new one.
 *
 * <p><b>Protocol.</b> Except for {@link #allGather}, the ranks meet in a store of short values,
 * which is on {@linkplain #tcp rank 0}, in {@linkplain #files a directory} or {@linkplain
 * #torchStore torchrun's agent}. Each rank announces its attempt there. When all have done so, rank
 * 0 answers each attempt with the id, and returns when each answer has a receipt. Values of earlier
 * runs, crashed or not, never provide an id, and a rank that dies and is restarted before the
 * timeout gets a new answer.
 *
 * <p><b>Failures.</b> If ranks do not agree (in world size, round, backend or secret), if two
 * processes have the same rank, if rank 0 cannot create the id, or if {@link #newCommunicator}
 * fails on a rank before it joins, all ranks that have arrived or arrive within a second fail with
 * the reason; rank 0 waits for them for that time. If ranks are missing at the timeout, rank 0
 * tells those that have arrived which.
 *
 * <p>Any thread may call, one at a time. Programs may also implement this interface themselves.
 */
@NullMarked
public interface Rendezvous extends AutoCloseable {
  /**
   * {@return the rendezvous of one rank at rank 0's port} Unless it is alone, rank 0 listens on the
   * port from now until {@link #close}, or until an exchange fails; the other ranks connect, and
   * retry until it does. Rank 0 listens on the loopback interface if {@code host} is {@code
   * localhost} or a loopback address, else on all interfaces, because the name by which others
   * reach this host may be unknown to the host itself.
   *
   * <p><b>What the secret protects.</b> A client proves that it knows it by an HMAC-SHA256 over
   * fresh random nonces, without sending it; what rank 0 sends is sealed, so a client need not
   * trust the server. Neither an unauthenticated client nor a replay of recorded messages can
   * obtain an id from rank 0 or pass an id to a rank. Ids, and whatever else the ranks tell each
   * other, are encrypted with AES-256-GCM under a key of that attempt.
   *
   * <p><b>What it does not protect.</b> Anyone who has the secret can take any rank's place. An
   * eavesdropper can test guesses offline, so the secret must be random; anyone who learns it later
   * can decrypt recorded exchanges. An attacker who controls the network can prevent the exchange,
   * and sees addresses and timing. NCCL's own traffic between the hosts is neither authenticated
   * nor encrypted.
   *
   * <p>Clients that are malformed, slow or silent, belong to another run, or do not know the secret
   * are disconnected; they do not affect other clients, with one exception: if the only ranks that
   * have not arrived are claimed by clients without the secret, rank 0 gives up after 0.8 seconds,
   * and all ranks learn why. At most 1,024 clients that have not authenticated may be connected;
   * each one beyond them takes the place of the oldest. The system property {@code
   * io.nccl4j.pendingConnections} or the environment variable {@code NCCL4J_PENDING_CONNECTIONS}
   * sets another limit. Rank 0 logs how many clients it rejected, with their addresses and the
   * reasons; if ranks are missing, its exception contains the same.
   *
   * @param host the name or address of rank 0's host, the same on every rank
   * @param port 1 to 65535, the same on every rank
   * @param secret known only to the ranks of this run
   * @param rankInfo the rank; its job id separates this run from others with the same secret
   * @throws IllegalArgumentException if the host is empty or the port out of range
   * @throws RendezvousException if rank 0 cannot listen on the port
   */
  static Rendezvous tcp(String host, int port, Secret secret, RankInfo rankInfo) {
    Objects.requireNonNull(secret, "secret");
    return RankRendezvous.tcp(host, port, secret.shared(), rankInfo);
  }

  /**
   * {@return the rendezvous of one rank at a port of this host's loopback interface, without a
   * secret} Any user of this host can take part, or take a rank's place; rank 0 logs a warning.
   *
   * @param port 1 to 65535, the same on every rank
   * @param rankInfo the rank; its job id separates this run from others
   * @throws IllegalArgumentException if the port is out of range
   * @throws RendezvousException if rank 0 cannot listen on the port
   */
  static Rendezvous loopback(int port, RankInfo rankInfo) {
    return RankRendezvous.loopback(port, rankInfo);
  }

  /**
   * {@return the rendezvous of one rank through files in a directory that all ranks share} It holds
   * no resources between exchanges, and a finished exchange leaves no files.
   *
   * <p>Two runs that are <em>alive</em> at once in one directory are separated by {@link
   * RankInfo#jobId} alone. If they have the same job id, or none, they fail as soon as one detects
   * the other, but an id may already have reached the other run. Any user who can write to the
   * directory can prevent the exchange. Files are readable by their owner only (mode 0600), so
   * another user can neither read an id nor forge one that a rank would accept. All ranks must run
   * as the same user. On NFS, set a timeout well above the clients' attribute cache time (60 s by
   * default).
   *
   * @param directory the directory; created with owner-only permissions if absent, never removed
   * @param rankInfo the rank; its job id separates this run from others in the same directory
   * @throws RendezvousException if the path is not a directory and none can be created there
   */
  static Rendezvous files(Path directory, RankInfo rankInfo) {
    return RankRendezvous.files(directory, rankInfo);
  }

  /**
   * {@return the rendezvous of one rank in a PyTorch TCP store} The store ({@code c10d::TCPStore},
   * PyTorch 2.5 or later) is that of torchrun's agent, for example. All ranks are clients; no rank
   * listens. They connect for each exchange. Three empty values for each rank stay in the store.
   *
   * <p>The store has no authentication: as with PyTorch itself, anyone who can reach its port can
   * disturb a run and, without a secret, read its ids or inject others. With a secret the id is
   * encrypted with AES-256-GCM under a key of that attempt, and a rank accepts an id only from a
   * rank 0 that knows the secret.
   *
   * @param host the name or address of the store's host
   * @param port the port of the store, 1 to 65535
   * @param secret known only to the ranks of this run, the same on all of them; empty to trust
   *     everyone who can reach the store
   * @param rankInfo the rank; its job id separates this run from others in the same store
   * @throws IllegalArgumentException if the host is empty or the port out of range
   */
  static Rendezvous torchStore(String host, int port, Optional<Secret> secret, RankInfo rankInfo) {
    return RankRendezvous.torchStore(host, port, secret, rankInfo);
  }

  /**
   * {@return the rendezvous of one rank over an all-gather of strings that the ranks' framework
   * provides} Spark's {@code BarrierTaskContext.allGather} is one:
   *
   * {@snippet :
   * Rendezvous rendezvous =
   *     Rendezvous.allGather(RankInfo.of(rank, size), text -> List.of(context.allGather(text)));
   * }
   *
   * <p>Each exchange is one all-gather, to which every rank contributes a short string of printable
   * ASCII with its rank, round and backend. So all ranks detect at once a rank that has failed, is
   * in another round, out of order, or on another backend.
   *
   * <p>The framework determines the timeout and the confidentiality of an exchange: {@link
   * RankInfo#timeout} is ignored, and {@link #close} does not end an all-gather in progress. On
   * rank 0 an exchange returns when all ranks have arrived. Exceptions that the all-gather throws
   * are propagated unchanged, so that the framework recognizes its own.
   *
   * @param rankInfo the rank; its job id and timeout are ignored
   * @param gather takes this rank's string and returns those of all ranks, in rank order, once all
   *     ranks have arrived. Called once per exchange, in the calling thread; not called if there is
   *     only one rank
   */
  static Rendezvous allGather(RankInfo rankInfo, Function<String, List<String>> gather) {
    return RankRendezvous.allGather(rankInfo, gather);
  }

  /** {@return this rank, from 0 to {@code size() - 1}} */
  int rank();

  /** {@return the number of ranks} */
  int size();

  /**
   * {@return the rank within its host, from 0, if known} {@link #newCommunicator} derives the
   * device from it. The default implementation returns empty.
   */
  default OptionalInt localRank() {
    return OptionalInt.empty();
  }

  /**
   * Exchanges one id. No rank gets it before all have arrived. On rank 0 this method returns when
   * all other ranks have confirmed the id, on the others when they have received it. If it throws,
   * the caller keeps ownership of the id created by {@code maker} and may close it ({@link
   * Backend#closeUniqueId}).
   *
   * @param maker creates the id, such as {@code backend::newUniqueId}. It is called on rank 0 only,
   *     once, in the calling thread. If it throws, the other ranks get the reason, and its
   *     exception is propagated unchanged
   * @return the id, the same on all ranks
   * @throws io.nccl4j.NcclTimeoutException if not all ranks arrived in time; on rank 0 it names the
   *     missing ranks
   * @throws RendezvousException if a file or connection failed, if a peer failed or rejected this
   *     rank, if the thread was interrupted (its interrupt status is then set), or if {@link
   *     #close} was called meanwhile
   * @throws IllegalStateException if the rendezvous is closed, has failed before, or is in use by
   *     another thread
   */
  UniqueId exchange(Supplier<UniqueId> maker);

  /**
   * Exchanges one id like {@link #exchange(Supplier)}, for communicators of a backend. Every
   * rendezvous of this package first compares the backends of all ranks: if they differ, every rank
   * that has arrived throws an exception that names a rank which differs from rank 0, and both
   * backends. With an implementation that does not override this method, {@link
   * Backend#newCommunicator} rejects the id on the rank that differs. If an exchange of this
   * package fails, rank 0 closes the id ({@link Backend#closeUniqueId}).
   *
   * @param backend the backend that this rank uses the id with; on rank 0 it also creates the id
   * @return the id, the same on all ranks
   * @throws io.nccl4j.NcclTimeoutException as {@link #exchange(Supplier)} does
   * @throws RendezvousException as {@link #exchange(Supplier)} does, and if ranks use different
   *     backends
   * @throws IllegalStateException as {@link #exchange(Supplier)} does
   */
  default UniqueId exchange(Backend backend) {
    return exchange(backend::newUniqueId);
  }

  /**
   * Exchanges an id and creates this rank's communicator with it. The device is the one set in
   * {@code config}, else {@code localRank % deviceCount} if the local rank is known. A process that
   * sees only the GPU its launcher assigned to it therefore gets that one.
   *
   * @param backend creates the communicator and, on rank 0, the id
   * @param config as for {@link Backend#newCommunicator}, except for the device, as above
   * @return the communicator, for the caller to close
   * @throws io.nccl4j.NcclTimeoutException if not all ranks arrived in time
   * @throws io.nccl4j.NcclException if the library failed
   * @throws RendezvousException as {@link #exchange(Backend)} does
   * @throws IllegalArgumentException if the other backend created the id, and the rendezvous does
   *     not compare the ranks' backends
   * @throws IllegalStateException as {@link #exchange(Supplier)} does
   */
  default Communicator newCommunicator(Backend backend, CommunicatorConfig config) {
    Objects.requireNonNull(backend, "backend");
    Objects.requireNonNull(config, "config");
    UniqueId id = exchange(backend);
    CommunicatorConfig placed =
        config.device().isEmpty() && localRank().isPresent()
            ? config.withDevice(localRank().getAsInt() % backend.devices().size())
            : config;
    return backend.newCommunicator(id, size(), rank(), placed);
  }

  /**
   * Exchanges an id and makes this rank's end of a communicator with the default configuration, as
   * {@link #newCommunicator(Backend, CommunicatorConfig)} does.
   *
   * @param backend makes the id, on rank 0, and the communicator
   * @return the communicator, for the caller to close
   */
  default Communicator newCommunicator(Backend backend) {
    return newCommunicator(backend, CommunicatorConfig.defaults());
  }

  /**
   * Releases all resources and ends an exchange in progress in another thread, which throws. Ids
   * already exchanged stay valid. Idempotent.
   */
  @Override
  void close();
}
