package io.nccl4j.rendezvous;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.UniqueId;
import java.util.Objects;
import java.util.OptionalInt;
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
 * <p>Any thread may call, one at a time. {@link AllGatherRendezvous} adapts a framework's
 * all-gather, such as that of Spark's barrier tasks; programs may also implement this interface
 * themselves.
 */
@NullMarked
public interface Rendezvous extends AutoCloseable {
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
   *     once, in the calling thread; exceptions it throws are propagated unchanged
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
   * that has arrived throws an exception that names the first rank which differs from rank 0, and
   * both backends. With an implementation that does not override this method, {@link
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
   * Releases all resources and ends an exchange in progress in another thread, which throws. Ids
   * already exchanged stay valid. Idempotent.
   */
  @Override
  void close();
}
