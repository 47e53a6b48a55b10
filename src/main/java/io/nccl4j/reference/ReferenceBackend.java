package io.nccl4j.reference;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.reference.ReferenceBackendDriver;
import io.nccl4j.internal.reference.bootstrap.ProcessEndpoint;
import io.nccl4j.internal.reference.bootstrap.RankMap;
import io.nccl4j.internal.reference.bootstrap.ReferenceId;
import io.nccl4j.internal.util.Arguments;
import io.nccl4j.spi.Contract;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.function.Supplier;
import java.util.stream.Stream;

/**
 * The pure-Java backend, and a view of one, which owns nothing: every rank is driven by a thread of
 * this process, buffers lie off the Java heap, and a device is nothing but a number. It needs no
 * native access.
 *
 * <p>The ranks of a communicator may be of several processes, on one or several hosts, and may be
 * made by different backends of this class, if those have the same options. They meet at the
 * process that has made the id, which need not have a rank itself but has to live until all have
 * come. A process listens from the moment when it makes an id, or joins by that of another, until
 * its communicators with ranks elsewhere have ended; an id that will not be used can be closed
 * ({@link Backend#closeUniqueId}). It does so at the first network interface that is up and no
 * loopback; the system property {@code io.nccl4j.reference.interface} or the environment variable
 * {@code NCCL4J_SOCKET_INTERFACE} names another, or {@code none}, which opens no socket and leaves
 * the process to itself.
 *
 * <p>A process that connects has to prove that it knows the secret in the id, without sending it;
 * what was recorded on one connection is worth nothing on another. All messages that set up and
 * control communicators are then encrypted and authenticated. The data of collectives is neither,
 * so the network has to be one that is trusted. Until it has proved itself, a connection costs this
 * process less than 4 KiB, and there are at most 64 of them; the system property {@code
 * io.nccl4j.pendingConnections} or the environment variable {@code NCCL4J_PENDING_CONNECTIONS} sets
 * another number.
 *
 * <p>When a process dies, stops answering or sends what makes no sense, every other rank gets an
 * exception that names its ranks: at once, or where nothing tells the process from a slow one,
 * after {@link CommunicatorConfig#timeout()}. The others can {@link Communicator#shrink shrink}.
 */
public final class ReferenceBackend {
  // Those that have initializers, or nested classes with such.
  private static final List<String> INITIALIZED =
      List.of(
          "internal.auth.PendingConnections",
          "internal.auth.SessionKeys",
          "internal.reference.ReferenceBackendDriver",
          "internal.reference.ReferenceCommunicator",
          "internal.reference.bootstrap.Connection",
          "internal.reference.bootstrap.EventLoop",
          "internal.reference.bootstrap.InitBootstrap",
          "internal.reference.bootstrap.JoiningProcess",
          "internal.reference.bootstrap.Handshake",
          "internal.reference.bootstrap.ListeningEndpoint",
          "internal.reference.bootstrap.Message",
          "internal.reference.bootstrap.BootstrapKey",
          "internal.reference.bootstrap.PendingConnection",
          "internal.reference.bootstrap.ReferenceId",
          "internal.reference.bootstrap.Secret",
          "internal.reference.bootstrap.ProcessEndpoint",
          "internal.reference.bootstrap.SocketAddresses",
          "internal.reference.collective.AllReduceAlgorithm",
          "internal.reference.collective.DirectSync",
          "internal.reference.collective.Call",
          "internal.reference.collective.CollectiveRunner",
          "internal.reference.collective.DirectAllReduce",
          "internal.reference.rank.RankFailure",
          "internal.reference.rank.HostedRank",
          "internal.reference.rank.IdleStrategy",
          "internal.reference.rank.RankState",
          "internal.reference.rank.RemoteProcess",
          "internal.reference.rank.CommunicatorState",
          "internal.reference.reduce.ArrayKernel",
          "internal.reference.reduce.FloatMinMaxKernel",
          "internal.reference.reduce.Int8Kernel",
          "internal.reference.reduce.Kernels",
          "internal.reference.reduce.ReductionOp",
          "internal.reference.reduce.MappedViews",
          "internal.reference.transport.SharedMemoryTransport",
          "internal.reference.transport.MemoryLink",
          "internal.reference.transport.Presence",
          "internal.reference.transport.Route",
          "internal.reference.transport.SharedMemory",
          "internal.reference.transport.SharedMemoryFiles",
          "internal.reference.transport.TcpFailure",
          "reference.Algorithm",
          "reference.Transport",
          "reference.ReferenceBackend",
          "reference.ReferenceOptions",
          "schedule.Action",
          "schedule.Layout",
          "schedule.TreePattern",
          "schedule.Protocol");

  private static volatile boolean initialized;

  private final ReferenceBackendDriver driver;

  private ReferenceBackend(ReferenceBackendDriver driver) {
    this.driver = driver;
  }

  /**
   * Opens a backend with the default options.
   *
   * @param devices how many devices it shows; 1 or more
   * @return the backend
   * @throws IllegalArgumentException if there is to be no device, or more than 32768
   */
  public static Backend open(int devices) {
    return open(devices, ReferenceOptions.defaults());
  }

  /**
   * Opens a backend.
   *
   * @param devices how many devices it shows; 1 or more
   * @param options what its collectives do their work with
   * @return the backend
   * @throws IllegalArgumentException if there is to be no device, or more than 32768
   */
  public static Backend open(int devices, ReferenceOptions options) {
    return open(devices, options, () -> List.of(ProcessEndpoint.ofThisProcess()));
  }

  /**
   * Opens a backend whose ranks behave as if they were in several processes, although all are in
   * this one: they find each other over sockets, and their data goes through shared memory or over
   * TCP, as {@link ReferenceOptions#transport} says. With it a test in one Java process takes the
   * paths of a program that will run in several.
   *
   * @param devices how many devices it shows; 1 or more
   * @param processes how many processes there seem to be; 1 or more. Rank r of a communicator is in
   *     process {@code r % processes}
   * @param options what its collectives do their work with
   * @return the backend
   * @throws IllegalArgumentException if there is to be no device or no process, or more than 32768
   */
  public static Backend openAsProcesses(int devices, int processes, ReferenceOptions options) {
    Arguments.atLeast(processes, "processes", 1);
    RankMap.checkMost(processes, "processes");
    return open(
        devices,
        options,
        () -> {
          Stream<ProcessEndpoint> others =
              Stream.generate(ProcessEndpoint::new).limit(processes - 1);
          return Stream.concat(Stream.of(ProcessEndpoint.ofThisProcess()), others).toList();
        });
  }

  /**
   * Opens a backend whose rank r is in place {@code r % n} of n.
   *
   * @param sites makes the places, once the classes that they need have been initialized
   */
  static Backend open(
      int devices, ReferenceOptions options, Supplier<List<ProcessEndpoint>> sites) {
    Arguments.atLeast(devices, "devices", 1);
    RankMap.checkMost(devices, "devices");
    Objects.requireNonNull(options, "options");
    if (!initialized) {
      Contract.get().initialize(INITIALIZED, type -> true);
      initialized = true;
    }
    return Contract.get()
        .backend(new ReferenceBackendDriver(devices, options.forRanks(), sites.get()));
  }

  /**
   * {@return the process that made an id, such as {@code process 4711 on host a}, if the reference
   * backend made it; nothing if NCCL did} Ranks on NCCL ask it before they use an id.
   *
   * @param id an id of either backend
   * @throws IllegalArgumentException if the reference backend made the id, but it is damaged
   */
  public static Optional<String> makerOf(UniqueId id) {
    return ReferenceId.madeHere(id)
        ? Optional.of(ReferenceId.of(id).maker().toString())
        : Optional.empty();
  }

  /**
   * {@return a view of a backend}
   *
   * @param backend a backend of this class
   * @throws IllegalArgumentException if it is another one
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
