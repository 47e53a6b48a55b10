package io.nccl4j.internal.reference.bootstrap;

import io.nccl4j.NcclResult;
import io.nccl4j.NcclSystemException;
import io.nccl4j.internal.util.Deadline;
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
 * This process as others can connect to it. It listens while it knows a secret: that of an id whose
 * ranks have not all come, or of a communicator with ranks in other processes. The thread of an
 * {@link EventLoop} accepts connections and reads messages.
 *
 * <p>A process that connects has to prove that it knows a secret that is known here. Anything else
 * is refused and logged, and harms nobody.
 */
abstract class ListeningEndpoint {
  private static final UUID HOST = thisHost();
  private static final String HOST_NAME = hostName();

  /** How long a secret that nobody holds any more is still known, and the socket open. */
  private static final long FADING_NANOS = TimeUnit.SECONDS.toNanos(5);

  private final UUID process = UUID.randomUUID();
  private final Map<Secret, Integer> secrets = new HashMap<>();
  // Those that nobody needs any more, and since when: who was let in by one may still be on the
  // way.
  private final Map<Secret, Long> expiring = new HashMap<>();
  // Those of ids that this process has made and that are still good.
  private final Set<Secret> made = new HashSet<>();
  private EventLoop loop;
  private final UUID host;

  /** Makes that of a process on a host; {@code null} is this one. */
  ListeningEndpoint(UUID host) {
    this.host = host == null ? HOST : host;
  }

  /** Returns this process's part of the communicator with this number, or null if there is none. */
  abstract CommunicatorEndpoint communicator(long id);

  /** Returns this process's parts of all communicators that have ranks in others. */
  abstract List<CommunicatorEndpoint> communicators();

  /** Returns where ranks of other processes are waited for that come by an id. */
  abstract List<BootstrapTarget> bootstrapTargets();

  /**
   * Returns what takes the messages of a process whose ranks come by an id.
   *
   * @param secret what the process has proved to know
   */
  abstract Connection.Receiver joiningProcess(Connection connection, Secret secret);

  public UUID process() {
    return process;
  }

  /** Returns what processes have in common that can share memory. */
  public UUID host() {
    return host;
  }

  /** Returns where this process is; without an address where it does not listen. */
  public synchronized ProcessAddress address() {
    return new ProcessAddress(
        process,
        host,
        loop == null ? null : loop.address(),
        ProcessHandle.current().pid(),
        HOST_NAME);
  }

  /**
   * Lets those in who know a secret, until it has been released as often.
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

  /** Holds the secret of an id that this process makes, until the id is spent. */
  public synchronized void make(Secret secret, String function) {
    retain(secret, function);
    made.add(secret);
  }

  /** Notes the secret of an id that only ranks of this process can come by. */
  synchronized void makeForOwn(Secret secret) {
    made.add(secret);
  }

  /** Returns whether an id that this process has made is still good. */
  public synchronized boolean isGood(Secret secret) {
    return made.contains(secret);
  }

  /** Releases the secret of an id that is no longer valid. */
  synchronized void spend(Secret secret) {
    if (made.remove(secret) && secrets.containsKey(secret)) {
      release(secret);
    }
  }

  /**
   * Forgets the secret of an id that nobody has come by, and stops listening if that is the last.
   */
  synchronized void discard(Secret secret) {
    if (!made.contains(secret)) {
      return;
    }
    spend(secret);
    expiring.remove(secret);
    if (loop != null) {
      loop.selector().wakeup();
    }
  }

  private EventLoop open(String function) {
    try {
      return new EventLoop(this, SocketAddresses.choose(SocketAddresses.setting()));
    } catch (IOException e) {
      NcclSystemException failure =
          new NcclSystemException(
              function,
              NcclResult.SYSTEM_ERROR.code(),
              "this process cannot listen for ranks of others: " + e.getMessage(),
              "");
      failure.initCause(e);
      throw failure;
    }
  }

  /** Returns whether the settings let ranks of other processes come here. */
  static boolean acceptsRemoteRanks() {
    return !SocketAddresses.NONE.equals(SocketAddresses.setting());
  }

  synchronized boolean knows(Secret secret) {
    return secrets.containsKey(secret) || expiring.containsKey(secret);
  }

  /** Returns the secret that another process names, or null if it is not known here. */
  synchronized Secret secretNamed(UUID name) {
    return Stream.concat(secrets.keySet().stream(), expiring.keySet().stream())
        .filter(secret -> secret.name().equals(name))
        .findFirst()
        .orElse(null);
  }

  /** Lets in those connections whose communicator has become known. */
  void admitParked() {
    EventLoop now;
    synchronized (this) {
      now = loop;
    }
    if (now != null) {
      now.execute(now::admitParked);
    }
  }

  /** Ends all connections, as the end of this process would; for tests. */
  public void die() {
    EventLoop now;
    synchronized (this) {
      now = loop;
    }
    now.die();
  }

  /** Connects to another process, within the time given. */
  public Connection connect(
      ProcessAddress to, Handshake.Opening opening, Connection.Receiver receiver, Deadline deadline)
      throws IOException {
    EventLoop now;
    synchronized (this) {
      now = loop;
    }
    if (now == null || to.address() == null) {
      throw new IOException((now == null ? "this process" : "it") + " no longer hears others");
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
      throw new IOException("this process no longer hears others", e);
    } catch (IOException | RuntimeException e) {
      channel.close();
      throw e;
    }
  }

  /** Returns whether a loop is to end, since nobody needs it; then it is forgotten. */
  synchronized boolean endsIdle(EventLoop which) {
    long now = System.nanoTime();
    expiring.values().removeIf(since -> now - since > FADING_NANOS);
    boolean idle = secrets.isEmpty() && expiring.isEmpty() && which.idle();
    if (idle) {
      forget(which);
    }
    return idle;
  }

  /** Has the next who needs a loop start another one. */
  synchronized void forget(EventLoop which) {
    if (loop == which) {
      loop = null;
    }
  }

  /** Forgets a loop that has failed, and with it the ids that lead to its address. */
  synchronized void forgetFailed(EventLoop which) {
    forget(which);
    List.copyOf(made).forEach(this::spend);
  }

  private static UUID thisHost() {
    try {
      // Processes share memory where they run on one kernel and see the same /dev/shm.
      String boot = Files.readString(Path.of("/proc/sys/kernel/random/boot_id"));
      Object device = Files.getAttribute(Path.of("/dev/shm"), "unix:dev");
      Object number = Files.getAttribute(Path.of("/dev/shm"), "unix:ino");
      String all = boot + device + " " + number;
      return UUID.nameUUIDFromBytes(all.getBytes(StandardCharsets.US_ASCII));
    } catch (IOException | UnsupportedOperationException | IllegalArgumentException e) {
      return UUID.randomUUID();
    }
  }

  private static String hostName() {
    try {
      return Files.readString(Path.of("/proc/sys/kernel/hostname")).strip();
    } catch (IOException e) {
      // Asking the resolver might take long, and is not worth it for a message.
      return "this host";
    }
  }
}
