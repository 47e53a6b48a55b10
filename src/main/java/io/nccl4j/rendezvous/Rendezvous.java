package io.nccl4j.rendezvous;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.UniqueId;
import java.util.Objects;
import java.util.OptionalInt;
import java.util.function.Supplier;

/**
 * One rank's place where the ranks of a run come to share unique ids: rank 0 makes an id, every
 * rank gets it.
 *
 * {@snippet :
 * try (Backend backend = Backend.auto();
 *     Rendezvous rendezvous = LaunchEnvironment.current().rendezvous(Duration.ofMinutes(2));
 *     Communicator communicator =
 *         rendezvous.newCommunicator(backend, CommunicatorConfig.defaults())) {
 *   // ...
 * }
 * }
 *
 * <p>Each call of {@code exchange} is one round. Every rank makes the same number of calls, and the
 * n-th call of each rank gives the same id, another one each round; so several communicators are
 * made one after the other. After a round that failed the ranks may stand in different rounds: the
 * rendezvous then refuses further calls and listens no longer, and all ranks make a new one.
 *
 * <p>A rank's calls come one at a time, from any thread. {@link AllGatherRendezvous} makes one of
 * what a framework already has, such as a barrier that gathers a text from each task; programs may
 * also implement this interface themselves.
 */
public interface Rendezvous extends AutoCloseable {
  /** {@return this rank, from 0 to {@code size() - 1}} */
  int rank();

  /** {@return how many ranks meet} */
  int size();

  /**
   * {@return this rank's number among those of its host, from 0 on, if it is known} {@link
   * #newCommunicator} takes the device from it. Empty unless an implementation knows better.
   */
  default OptionalInt localRank() {
    return OptionalInt.empty();
  }

  /**
   * Shares one id. No rank gets it before all have come. On rank 0 this method returns when all
   * other ranks are known to have the id, on the others when they have it. If it throws, the id of
   * {@code maker} is left to the caller, who may close it ({@link Backend#closeUniqueId}).
   *
   * @param maker makes the id, such as {@code backend::newUniqueId}. It is called on rank 0 only,
   *     once, in the calling thread; what it throws comes out unchanged
   * @return the id that all ranks get
   * @throws io.nccl4j.NcclTimeoutException if not all came in time; on rank 0 it names the ranks
   *     that are missing
   * @throws RendezvousException if a file, a connection or a peer failed or refused, if the thread
   *     was interrupted (its interrupt status is then set), or if {@link #close} was called
   *     meanwhile
   * @throws IllegalStateException if the rendezvous is closed, has failed before, or is in use by
   *     another thread
   */
  UniqueId exchange(Supplier<UniqueId> maker);

  /**
   * Shares one id as {@link #exchange(Supplier)} does, for communicators of a backend. Every
   * rendezvous of this package compares the backends of all ranks first: if they are not the same,
   * every rank that has come gets an exception that names the first rank which differs from rank 0,
   * and both backends. An implementation that does not override this method leaves that to {@link
   * Backend#newCommunicator}, which refuses an id of the other backend on the rank that differs. If
   * an exchange of this package fails, rank 0 closes the id ({@link Backend#closeUniqueId}).
   *
   * @param backend makes the id, on rank 0; the backend that this rank uses it with
   * @return the id that all ranks get
   * @throws io.nccl4j.NcclTimeoutException as {@link #exchange(Supplier)} does
   * @throws RendezvousException as {@link #exchange(Supplier)} does, and if ranks use different
   *     backends
   * @throws IllegalStateException as {@link #exchange(Supplier)} does
   */
  default UniqueId exchange(Backend backend) {
    return exchange(backend::newUniqueId);
  }

  /**
   * Exchanges an id and makes this rank's end of a communicator with it. The device is the one that
   * {@code config} names, else {@code localRank % deviceCount} where the local rank is known: the
   * rank alone does not tell which GPU of its host is still free. A process that sees one GPU,
   * chosen for it by its launcher, so gets that one.
   *
   * @param backend makes the id, on rank 0, and the communicator
   * @param config as for {@link Backend#newCommunicator}, but for the device, as above
   * @return the communicator, for the caller to close
   * @throws io.nccl4j.NcclTimeoutException if not all ranks came in time
   * @throws io.nccl4j.NcclException if the library failed
   * @throws RendezvousException as {@link #exchange(Backend)} does
   * @throws IllegalArgumentException if the other backend made the id, and the rendezvous has not
   *     compared the ranks' backends
   * @throws IllegalStateException as {@link #exchange(Supplier)} does
   */
  default Communicator newCommunicator(Backend backend, CommunicatorConfig config) {
    Objects.requireNonNull(backend, "backend");
    Objects.requireNonNull(config, "config");
    int devices = backend.devices().size();
    CommunicatorConfig placed =
        config.device().isEmpty() && localRank().isPresent()
            ? config.withDevice(localRank().getAsInt() % devices)
            : config;
    return backend.newCommunicator(exchange(backend), size(), rank(), placed);
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
   * Gives back what the rendezvous holds; an exchange under way in another thread ends. Ids that
   * were exchanged stay valid. Idempotent.
   */
  @Override
  void close();
}
