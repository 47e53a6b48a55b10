package io.nccl4j.reference;

import io.nccl4j.NcclSystemException;
import io.nccl4j.Result;
import io.nccl4j.UniqueId;
import java.io.DataInput;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ProtocolException;
import java.net.StandardSocketOptions;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * This process, as a place of ranks that those of other processes can reach. It listens while it
 * knows a secret: that of an id whose ranks have not all come, or of a world with ranks in other
 * processes. One daemon thread accepts connections and reads messages; it never waits for anything
 * else.
 *
 * <p>Whoever connects has to show a secret that is known here. Anything else is refused and logged,
 * and harms nobody.
 */
final class Site {
  private static final UUID HOST = thisHost();
  private static final String HOST_NAME = hostName();
  private static final Site THIS_PROCESS = new Site();
  private static final AtomicLong LOOPS = new AtomicLong();

  /** How long a connection may take to say what it is for. */
  private static final long PATIENCE_NANOS = TimeUnit.SECONDS.toNanos(10);

  /** How long a secret that nobody holds any more is still known, and the socket open. */
  private static final long FADING_NANOS = TimeUnit.SECONDS.toNanos(5);

  /** How long a connection to a world waits for its secret to be known here. */
  private static final long STRANGE_NANOS = TimeUnit.SECONDS.toNanos(2);

  private static final long LOOK_MILLIS = 500;
  private static final String STRANGE =
      "it does not know the secret of any communicator of this process";

  private final UUID process = UUID.randomUUID();
  private final Map<Secret, Integer> secrets = new HashMap<>();
  // Those that nobody needs any more, and since when: who was let in by one may still be on the
  // way.
  private final Map<Secret, Long> fading = new HashMap<>();
  private final Set<Secret> made = new HashSet<>();
  private final Map<Long, World> worlds = new HashMap<>();
  private final Map<UniqueId, Doorway> doorways = new HashMap<>();
  private Loop loop;

  private final UUID host;

  /** Makes one of its own, as if it were another process; for tests. */
  Site() {
    this(HOST);
  }

  /** Makes one of its own, as if it were a process of another host; for tests. */
  Site(UUID host) {
    this.host = host;
  }

  static Site ofThisProcess() {
    return THIS_PROCESS;
  }

  /** Finds the logger only when there is something to say, since most programs never need it. */
  static Logger log() {
    return LogManager.getLogger(Site.class);
  }

  UUID process() {
    return process;
  }

  /** Returns what processes have in common that can share memory. */
  UUID host() {
    return host;
  }

  /** Returns where this process is; without an address where it does not listen. */
  synchronized Location location() {
    return new Location(
        process,
        host,
        loop == null ? null : loop.address,
        ProcessHandle.current().pid(),
        HOST_NAME);
  }

  /**
   * Lets those in who know a secret, until it has been released as often.
   *
   * @throws NcclSystemException if this process cannot listen
   */
  synchronized void hold(Secret secret, String function) {
    if (loop == null) {
      loop = open(function);
    }
    secrets.merge(secret, 1, Integer::sum);
  }

  synchronized void release(Secret secret) {
    if (secrets.merge(secret, -1, Integer::sum) == 0) {
      secrets.remove(secret);
      fading.put(secret, System.nanoTime());
    }
  }

  /** Holds the secret of an id that this process makes, until the id is spent. */
  synchronized void make(Secret secret, String function) {
    hold(secret, function);
    made.add(secret);
  }

  /** Releases the secret of an id that is good no more. */
  synchronized void spend(Secret secret) {
    if (made.remove(secret)) {
      release(secret);
    }
  }

  private Loop open(String function) {
    try {
      return new Loop(SocketAddresses.choose(SocketAddresses.setting()));
    } catch (IOException e) {
      NcclSystemException failure =
          new NcclSystemException(
              function,
              Result.SYSTEM_ERROR.code(),
              "this process cannot listen for ranks of others: " + e.getMessage(),
              "");
      failure.initCause(e);
      throw failure;
    }
  }

  /** Returns whether the settings let ranks of other processes come here. */
  static boolean sociable() {
    return !SocketAddresses.NONE.equals(SocketAddresses.setting());
  }

  private synchronized boolean knows(Secret secret) {
    return secrets.containsKey(secret) || fading.containsKey(secret);
  }

  /** Lets those in who come by an id. */
  void open(UniqueId id, Doorway doorway) {
    synchronized (doorways) {
      doorways.put(id, doorway);
    }
  }

  void shut(UniqueId id, Doorway doorway) {
    synchronized (doorways) {
      doorways.remove(id, doorway);
    }
  }

  /** Guards {@link #doorway} and what follows from it. */
  Object doors() {
    return doorways;
  }

  /** Returns where those are let in who come by an id, or null. */
  Doorway doorway(UniqueId id) {
    synchronized (doorways) {
      return doorways.get(id);
    }
  }

  /** Returns how many ids ranks are waiting by; for tests. */
  int openDoorways() {
    synchronized (doorways) {
      return doorways.size();
    }
  }

  /** Lets the other processes of a world find it. */
  void enroll(World world) {
    Loop now;
    synchronized (this) {
      worlds.put(world.id(), world);
      now = loop;
    }
    now.execute(now::admitParked);
  }

  synchronized void dismiss(World world) {
    worlds.remove(world.id());
  }

  private synchronized World world(long id) {
    return worlds.get(id);
  }

  /** Ends all connections, as the end of this process would; for tests. */
  void die() {
    Loop now;
    synchronized (this) {
      now = loop;
    }
    now.dead = true;
    now.selector.wakeup();
  }

  /** Connects to another process, within the time given. */
  Connection connect(Location to, Connection.Receiver receiver, Deadline deadline)
      throws IOException {
    SocketChannel channel = SocketChannel.open();
    try {
      channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
      channel.socket().connect(to.address(), (int) deadline.millisLeft(Integer.MAX_VALUE));
      Connection connection = new Connection(channel, receiver);
      Loop now;
      synchronized (this) {
        now = loop;
      }
      connection.register(now.selector);
      return connection;
    } catch (IOException | RuntimeException e) {
      channel.close();
      throw e;
    }
  }

  /** What comes over a connection that has not said yet what it is for. */
  private final class Newcomer implements Connection.Receiver {
    private final long since = System.nanoTime();
    private final Connection connection;
    private final Loop home;
    private Secret secret;
    private long wanted;
    // Of a connection to a world; the world may not be here yet.
    private Message first;

    Newcomer(SocketChannel channel, Loop home) throws IOException {
      this.connection = new Connection(channel, this);
      this.home = home;
    }

    @Override
    public void receive(Connection from, Message message) throws IOException {
      DataInput in = message.content();
      int version = in.readInt();
      if (version != Message.VERSION) {
        throw new ProtocolException(
            "it speaks version " + version + "; this process speaks " + Message.VERSION);
      }
      secret = Secret.read(in);
      switch (message.kind()) {
        case JOIN -> join(message);
        case CONTROL, LINK -> {
          wanted = in.readLong();
          first = message;
          if (!admitted()) {
            connection.pause();
          }
        }
        default -> throw new ProtocolException("it begins with a " + message.kind() + " message");
      }
    }

    private void join(Message message) throws IOException {
      if (!knows(secret)) {
        throw new ProtocolException(STRANGE);
      }
      home.newcomers.remove(this);
      Guest guest = new Guest(Site.this, connection);
      connection.tell(guest);
      guest.receive(connection, message);
    }

    /** Goes where it wants to go, if that is there; returns whether it is. */
    boolean admitted() throws IOException {
      World world = first == null || !knows(secret) ? null : world(wanted);
      if (world == null) {
        return false;
      }
      if (!world.plan().secret().equals(secret)) {
        throw new ProtocolException(STRANGE);
      }
      home.newcomers.remove(this);
      DataInput in = first.content();
      in.skipBytes(3 * Long.BYTES + Integer.BYTES);
      connection.resume();
      if (first.kind() == Message.Kind.CONTROL) {
        world.admitControl(connection, in);
      } else {
        world.admitLink(connection, in);
      }
      return true;
    }

    /** Returns why to wait no longer for what this wants, or null. */
    String tooLate(long now) {
      if (first == null) {
        return now - since < PATIENCE_NANOS ? null : "it has not said what it wants";
      }
      // Ranks here that have not got ready yet fail by their own deadline, not by ours.
      return knows(secret) || now - since < STRANGE_NANOS ? null : STRANGE;
    }

    @Override
    public void ended(Connection from, String why, boolean nonsense) {
      home.newcomers.remove(this);
      log().warn("refused a connection from {}: {}", from, why == null ? "it said nothing" : why);
    }
  }

  /** The listening socket and the thread that reads. */
  private final class Loop implements Runnable {
    private final Selector selector = Selector.open();
    private final ServerSocketChannel server = ServerSocketChannel.open();
    private final List<Newcomer> newcomers = new ArrayList<>();
    private final ConcurrentLinkedQueue<Runnable> errands = new ConcurrentLinkedQueue<>();
    private final InetSocketAddress address;
    private volatile boolean dead;

    Loop(InetAddress at) throws IOException {
      try {
        server.bind(new InetSocketAddress(at, 0), 1024);
        server.configureBlocking(false);
        server.register(selector, SelectionKey.OP_ACCEPT);
        address = (InetSocketAddress) server.getLocalAddress();
      } catch (IOException e) {
        close();
        throw e;
      }
      Thread.ofPlatform().daemon().name("nccl4j-site-" + LOOPS.incrementAndGet()).start(this);
    }

    private void execute(Runnable errand) {
      errands.add(errand);
      selector.wakeup();
    }

    @Override
    public void run() {
      try {
        do {
          selector.select(this::proceed, LOOK_MILLIS);
          for (Runnable errand = errands.poll(); errand != null; errand = errands.poll()) {
            carryOut(errand);
          }
          refuseLate();
        } while (!dead && !endsIdle());
      } catch (IOException | RuntimeException e) {
        log().error("this process cannot hear others any more", e);
        synchronized (Site.this) {
          loop = null;
        }
      } finally {
        close();
      }
    }

    private void carryOut(Runnable errand) {
      try {
        errand.run();
      } catch (RuntimeException e) {
        log().error("an errand of this process's site could not be done", e);
      }
    }

    private void proceed(SelectionKey key) {
      if (key.attachment() instanceof Connection connection) {
        try {
          connection.proceed();
        } catch (RuntimeException e) {
          log().error("what came from {} could not be dealt with", connection, e);
          connection.refuse("what it sent could not be dealt with: " + e);
        }
      } else {
        accept();
      }
    }

    private void accept() {
      try {
        SocketChannel channel = server.accept();
        if (channel != null) {
          channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
          Newcomer newcomer = new Newcomer(channel, this);
          newcomers.add(newcomer);
          newcomer.connection.register(selector);
        }
      } catch (IOException e) {
        log().warn("a connection could not be accepted", e);
      }
    }

    private void admitParked() {
      for (Newcomer newcomer : List.copyOf(newcomers)) {
        try {
          newcomer.admitted();
        } catch (IOException e) {
          newcomer.connection.refuse(e.getMessage());
        }
      }
    }

    private void refuseLate() {
      long now = System.nanoTime();
      for (Newcomer newcomer : List.copyOf(newcomers)) {
        String why = newcomer.tooLate(now);
        if (why != null) {
          newcomer.connection.refuse(why);
        }
      }
    }

    private boolean endsIdle() {
      synchronized (Site.this) {
        long now = System.nanoTime();
        fading.values().removeIf(since -> now - since > FADING_NANOS);
        boolean idle =
            secrets.isEmpty() && fading.isEmpty() && worlds.isEmpty() && errands.isEmpty();
        if (idle) {
          loop = null;
        }
        return idle;
      }
    }

    private void close() {
      try {
        server.close();
        for (Iterator<SelectionKey> keys = selector.keys().iterator(); keys.hasNext(); ) {
          keys.next().channel().close();
        }
        selector.close();
      } catch (IOException e) {
        log().warn("the listening socket could not be closed", e);
      }
    }
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
