package io.nccl4j.reference;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.internal.reference.ReferenceBackendDriver;
import io.nccl4j.internal.reference.bootstrap.ProcessEndpoint;
import io.nccl4j.internal.reference.bootstrap.RankMap;
import io.nccl4j.internal.util.Arguments;
import io.nccl4j.spi.Contract;
import java.util.List;
import java.util.Objects;
import java.util.stream.Stream;
import org.jspecify.annotations.NullMarked;

/**
 * Opens the pure-Java backend. An instance is a view of an open backend; it owns nothing.
 *
 * {@snippet :
 * ReferenceOptions options = ReferenceOptions.defaults().withAlgorithm(Algorithm.RING);
 * try (Backend backend = ReferenceBackend.open(4, options)) {
 *   backend.runRanks(4, comm -> train(comm));
 * }
 * }
 *
 * <p>Each stream is executed by a thread of this process, buffers are off-heap memory, and a device
 * is only a number. The backend needs no native access.
 *
 * <p>The ranks of a communicator may be in several processes, on one or several hosts. They may be
 * created by different backends of this class if these have the same options. The process that
 * created the unique id coordinates the bootstrap; it need not have a rank itself, but must live
 * until all ranks have joined. A process listens from when it creates an id, or joins with the id
 * of another process, until its communicators with ranks in other processes have ended. An id that
 * will not be used can be closed ({@link Backend#closeUniqueId}).
 *
 * <p>A process listens on the first network interface that is up and is not a loopback interface.
 * The system property {@code io.nccl4j.reference.interface} or the environment variable {@code
 * NCCL4J_SOCKET_INTERFACE} selects another one. With the value {@code none} the process opens no
 * socket, and its communicators cannot have ranks in other processes.
 *
 * <p>A connecting process must prove that it knows the secret in the id, without sending it; a
 * recorded handshake cannot be replayed on another connection. All messages that set up and control
 * communicators are encrypted and authenticated. The data of collectives is neither, so the network
 * must be trusted. An unauthenticated connection costs this process less than 4 KiB. At most 1,024
 * of them are open at a time, and one more takes the place of the oldest; the system property
 * {@code io.nccl4j.pendingConnections} or the environment variable {@code
 * NCCL4J_PENDING_CONNECTIONS} sets another limit. {@code NCCL4J_PORTS} (or {@code io.nccl4j.ports})
 * limits the ports to listen on to a range, such as {@code 29500-29600}.
 *
 * <p>If a process dies, stops responding or violates the protocol, every other rank gets an
 * exception that names the ranks of that process: immediately, or, if the process cannot be
 * distinguished from a slow one, after {@link CommunicatorConfig#timeout()}. The remaining ranks
 * can {@link Communicator#shrink shrink} the communicator.
 */
@NullMarked
public final class ReferenceBackend {
  private final ReferenceBackendDriver driver;

  private ReferenceBackend(ReferenceBackendDriver driver) {
    this.driver = driver;
  }

  /**
   * Opens a backend with the default options.
   *
   * @param devices the number of devices, from 1 to 32768
   * @return the backend
   * @throws IllegalArgumentException if {@code devices} is out of range
   */
  public static Backend open(int devices) {
    return open(devices, ReferenceOptions.defaults());
  }

  /**
   * Opens a backend.
   *
   * @param devices the number of devices, from 1 to 32768
   * @param options the options of its communicators
   * @return the backend
   * @throws IllegalArgumentException if {@code devices} is out of range
   */
  public static Backend open(int devices, ReferenceOptions options) {
    return open(devices, options, List.of(ProcessEndpoint.ofThisProcess()));
  }

  /**
   * Opens a backend for tests, whose ranks behave as if they were in several processes: rank r of a
   * communicator in process {@code r % processes}. They connect over sockets, and their data is
   * transferred through shared memory or over TCP, depending on {@link ReferenceOptions#transport}.
   */
  static Backend openAsProcesses(int devices, int processes, ReferenceOptions options) {
    Stream<ProcessEndpoint> others = Stream.generate(ProcessEndpoint::new).limit(processes - 1);
    return open(
        devices,
        options,
        Stream.concat(Stream.of(ProcessEndpoint.ofThisProcess()), others).toList());
  }

  /**
   * Opens a backend whose rank r is at endpoint {@code r % n} of n.
   *
   * @param endpoints the endpoints
   */
  static Backend open(int devices, ReferenceOptions options, List<ProcessEndpoint> endpoints) {
    Arguments.atLeast(devices, "devices", 1);
    RankMap.checkMost(devices, "devices");
    Objects.requireNonNull(options, "options");
    return Contract.get()
        .backend(new ReferenceBackendDriver(devices, options.forRanks(), endpoints));
  }

  /**
   * {@return a view of a backend}
   *
   * @param backend a backend that was opened by this class
   * @throws IllegalArgumentException if it is another backend
   */
  public static ReferenceBackend of(Backend backend) {
    Objects.requireNonNull(backend, "backend");
    if (Contract.get().driver(backend) instanceof ReferenceBackendDriver driver) {
      return new ReferenceBackend(driver);
    }
    throw new IllegalArgumentException(
        "backend is " + backend.name() + "; this needs the backend reference");
  }

  /** {@return the options of the backend's communicators} */
  public ReferenceOptions options() {
    return ReferenceOptions.of(driver.options());
  }
}
