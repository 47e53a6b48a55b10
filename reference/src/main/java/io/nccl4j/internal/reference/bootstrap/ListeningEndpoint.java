package io.nccl4j.internal.reference.bootstrap;

import io.nccl4j.NcclException;
import io.nccl4j.NcclResult;
import io.nccl4j.NcclSystemException;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.spi.Contract;
import java.io.IOException;
import java.net.StandardSocketOptions;
import java.nio.channels.ClosedSelectorException;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/**
 * The listening side of this process. It listens while it knows a secret: that of an id whose ranks
 * have not all joined, or of a communicator with ranks in other processes. The thread of an {@link
 * EventLoop} accepts connections and reads messages.
 *
 * <p>A process that connects has to prove that it knows a secret that is known here. Any other
 * connection is refused and logged, without effect on communicators.
 */
abstract class ListeningEndpoint {
  private static final UUID HOST = thisHost();
  private static final String HOST_NAME = hostName();

  /** How long a released secret stays known, and the socket open. */
  private static final long EXPIRY_NANOS = TimeUnit.SECONDS.toNanos(5);

  private final UUID process = UUID.randomUUID();
  private final Map<Secret, Integer> secrets = new HashMap<>();
  // Released secrets, and since when: a process that was admitted by one may still be connecting.
  private final Map<Secret, Long> expiring = new HashMap<>();
  // The secrets of ids that this process has created and that are still valid.
  private final Set<Secret> idSecrets = new HashSet<>();
  private EventLoop loop;
  private final UUID host;

  /** Creates the endpoint of a process on a host; {@code null} is this host. */
  ListeningEndpoint(UUID host) {
    this.host = host == null ? HOST : host;
  }

  /** Returns this process's part of the communicator with this id, or null if there is none. */
  abstract CommunicatorEndpoint communicator(long id);

  /** Returns this process's parts of all communicators that have ranks in other processes. */
  abstract List<CommunicatorEndpoint> communicators();

  /** Returns the bootstrap targets that still wait for ranks. */
  abstract List<BootstrapTarget> bootstrapTargets();

  /**
   * Returns the receiver for a process whose ranks join by an id.
   *
   * @param secret the secret that the process has proved to know
   */
  abstract Connection.Receiver joiningProcess(Connection connection, Secret secret);

  public UUID process() {
    return process;
  }

  /** Returns the id of the host; processes with the same id can share memory. */
  public UUID host() {
    return host;
  }

  /** Returns the address of this process, without a socket address if it does not listen. */
  public synchronized ProcessAddress address() {
    return new ProcessAddress(
        process,
        host,
        loop == null ? null : loop.address(),
        ProcessHandle.current().pid(),
        HOST_NAME);
  }

  /**
   * Admits processes that know a secret, until it has been released as often.
   *
   * @throws NcclSystemException if this process cannot listen
   */
  public synchronized void retain(Secret secret, String function) {
    if (loop == null) {
      loop = open(function);
    }
    secrets.merge(secret, 1, Integer::sum);
  }

  public synchronized void release(Secret secret) {
    if (secrets.merge(secret, -1, Integer::sum) == 0) {
      secrets.remove(secret);
      expiring.put(secret, System.nanoTime());
    }
  }

  /** Retains the secret of a new id of this process, until the id is invalidated. */
  public synchronized void retainForId(Secret secret, String function) {
    retain(secret, function);
    idSecrets.add(secret);
  }

  /** Records the secret of an id by which only ranks of this process can join. */
  synchronized void addLocal(Secret secret) {
    idSecrets.add(secret);
  }

  /** Returns whether an id that this process has created is still valid. */
  public synchronized boolean isValid(Secret secret) {
    return idSecrets.contains(secret);
  }

  /** Releases the secret of an id that is no longer valid. */
  synchronized void invalidate(Secret secret) {
    if (idSecrets.remove(secret) && secrets.containsKey(secret)) {
      release(secret);
    }
  }

  /** Removes the secret of an unused id, and stops listening if it is the last. */
  synchronized void discard(Secret secret) {
    if (!idSecrets.contains(secret)) {
      return;
    }
    invalidate(secret);
    expiring.remove(secret);
    if (loop != null) {
      loop.selector().wakeup();
    }
  }

  private EventLoop open(String function) {
    try {
      return new EventLoop(this, SocketAddresses.choose(SocketAddresses.setting()));
    } catch (IOException e) {
      NcclException failure =
          Contract.get()
              .failure(
                  function,
                  NcclResult.SYSTEM_ERROR.code(),
                  "this process cannot listen for ranks of other processes: " + e.getMessage(),
                  "");
      failure.initCause(e);
      throw failure;
    }
  }

  /** Returns whether the settings allow ranks of other processes to join here. */
  static boolean acceptsRemoteRanks() {
    return !SocketAddresses.NONE.equals(SocketAddresses.setting());
  }

  synchronized boolean knows(Secret secret) {
    return secrets.containsKey(secret) || expiring.containsKey(secret);
  }

  /** Returns the secret with this name, or null if it is not known here. */
  synchronized Secret secretNamed(UUID name) {
    return Stream.concat(secrets.keySet().stream(), expiring.keySet().stream())
        .filter(secret -> secret.name().equals(name))
        .findFirst()
        .orElse(null);
  }

  /** Admits the connections whose communicator has become known. */
  void admitParked() {
    EventLoop now;
    synchronized (this) {
      now = loop;
    }
    if (now != null) {
      now.execute(now::admitParked);
    }
  }

  /** Closes all connections, as the death of this process would; for tests. */
  public void die() {
    EventLoop now;
    synchronized (this) {
      now = loop;
    }
    now.die();
  }

  /** Connects to another process before the deadline. */
  public Connection connect(
      ProcessAddress to, Handshake.Opening opening, Connection.Receiver receiver, Deadline deadline)
      throws IOException {
    EventLoop now;
    synchronized (this) {
      now = loop;
    }
    if (now == null || to.address() == null) {
      throw new IOException((now == null ? "this process" : "it") + " no longer listens");
    }
    SocketChannel channel = SocketChannel.open();
    try {
      channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
      channel.socket().connect(to.address(), deadline.remainingMillis());
      Connection connection = Connection.connected(channel, receiver, opening);
      connection.register(now.selector());
      return connection;
    } catch (ClosedSelectorException e) {
      channel.close();
      throw new IOException("this process no longer listens", e);
    } catch (IOException | RuntimeException e) {
      channel.close();
      throw e;
    }
  }

  /** Returns whether an event loop is idle and has to end; this endpoint has then dropped it. */
  synchronized boolean endIfIdle(EventLoop eventLoop) {
    long now = System.nanoTime();
    expiring.values().removeIf(since -> now - since > EXPIRY_NANOS);
    boolean idle = secrets.isEmpty() && expiring.isEmpty() && eventLoop.idle();
    if (idle) {
      forget(eventLoop);
    }
    return idle;
  }

  /** Drops an event loop; the next use starts another one. */
  synchronized void forget(EventLoop eventLoop) {
    if (loop == eventLoop) {
      loop = null;
    }
  }

  /** Drops an event loop that has failed, and invalidates the ids with its address. */
  synchronized void forgetFailed(EventLoop eventLoop) {
    forget(eventLoop);
    List.copyOf(idSecrets).forEach(this::invalidate);
  }

  private static UUID thisHost() {
    try {
      // Processes can share memory if they run on one kernel and see the same /dev/shm.
      String boot = Files.readString(Path.of("/proc/sys/kernel/random/boot_id"));
      Object device = Files.getAttribute(Path.of("/dev/shm"), "unix:dev");
      Object number = Files.getAttribute(Path.of("/dev/shm"), "unix:ino");
      String identity = boot + device + " " + number;
      return UUID.nameUUIDFromBytes(identity.getBytes(StandardCharsets.US_ASCII));
    } catch (IOException | UnsupportedOperationException | IllegalArgumentException e) {
      return UUID.randomUUID();
    }
  }

  private static String hostName() {
    try {
      return Files.readString(Path.of("/proc/sys/kernel/hostname")).strip();
    } catch (IOException e) {
      // The name is used in messages only, so it is not worth a slow DNS lookup.
      return "this host";
    }
  }
}
