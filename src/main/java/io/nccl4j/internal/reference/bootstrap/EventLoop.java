package io.nccl4j.internal.reference.bootstrap;

import io.nccl4j.internal.auth.PendingConnections;
import io.nccl4j.internal.reference.transport.TcpFailure;
import io.nccl4j.internal.util.CloseAll;
import io.nccl4j.internal.util.MemoryShortage;
import io.nccl4j.internal.util.RateLimitedWarning;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * The listening socket of a {@link ListeningEndpoint} and the one daemon thread that accepts
 * connections and reads messages; it never waits for anything else. It ends when the site needs it
 * no more. An error that it cannot go on after ends it too, with all its connections; the site then
 * starts another one when it has to.
 */
final class EventLoop implements Runnable {
  private static final AtomicLong LOOPS = new AtomicLong();

  /** Says that connections were refused; strangers decide how often. */
  private static final RateLimitedWarning REFUSALS = new RateLimitedWarning();

  private static final RateLimitedWarning FAILED_ACCEPTS = new RateLimitedWarning();

  private static final int BACKLOG = 1024;
  private static final long LOOK_MILLIS = 500;
  private static final long AFTER_FAILED_ACCEPT_NANOS = TimeUnit.MILLISECONDS.toNanos(500);

  private final ListeningEndpoint endpoint;
  private final Selector selector;
  private final ServerSocketChannel server;
  private final SelectionKey acceptKey;
  private final InetSocketAddress address;
  private final PendingConnections<PendingConnection> pending;
  // Those that know a secret of this process, but whose world is not here yet.
  private final List<PendingConnection> parked = new ArrayList<>();
  private final ConcurrentLinkedQueue<Runnable> tasks = new ConcurrentLinkedQueue<>();
  private long acceptAt = System.nanoTime();
  private IOException acceptFailure;
  private long lookedAt = System.nanoTime();
  private volatile boolean dead;

  /** Begins to listen. */
  EventLoop(ListeningEndpoint endpoint, InetAddress at) throws IOException {
    this.endpoint = endpoint;
    this.pending = new PendingConnections<>(PendingConnections.limit(), PendingConnections.GRACE);
    this.selector = Selector.open();
    ServerSocketChannel opened = null;
    boolean started = false;
    try {
      opened = ServerSocketChannel.open();
      server = opened;
      server.bind(new InetSocketAddress(at, 0), BACKLOG);
      server.configureBlocking(false);
      acceptKey = server.register(selector, SelectionKey.OP_ACCEPT);
      address = (InetSocketAddress) server.getLocalAddress();
      Thread.ofPlatform().daemon().name("nccl4j-site-" + LOOPS.incrementAndGet()).start(this);
      started = true;
    } finally {
      if (!started) {
        closeSockets(opened);
      }
    }
  }

  InetSocketAddress address() {
    return address;
  }

  Selector selector() {
    return selector;
  }

  /** Has this thread do something. */
  void execute(Runnable errand) {
    tasks.add(errand);
    selector.wakeup();
  }

  boolean idle() {
    return tasks.isEmpty();
  }

  /** Ends all connections, as the end of this process would; for tests. */
  void die() {
    dead = true;
    selector.wakeup();
  }

  @Override
  public void run() {
    try {
      do {
        selector.select(this::proceed, awaitAccept());
        for (Runnable errand = tasks.poll(); errand != null; errand = tasks.poll()) {
          runAndLog(errand);
        }
        long now = System.nanoTime();
        if (now - lookedAt >= TimeUnit.MILLISECONDS.toNanos(LOOK_MILLIS)) {
          lookedAt = now;
          expirePending(now);
        }
      } while (!dead && !endpoint.endsIdle(this));
      closeSockets(server);
    } catch (Throwable e) {
      // Whatever it is: a process that listens and does not hear would keep its ranks waiting.
      end(e);
    }
  }

  /** Accepts connections while there is room; returns how long to wait, in milliseconds. */
  private long awaitAccept() {
    long failed = acceptAt - System.nanoTime();
    if (acceptFailure != null && failed <= 0) {
      warnOfFailure();
    }
    long nanos = Math.max(failed, pending.nanosUntilRoom());
    acceptKey.interestOps(nanos > 0 ? 0 : SelectionKey.OP_ACCEPT);
    long millis = TimeUnit.NANOSECONDS.toMillis(nanos) + 1;
    return nanos > 0 ? Math.min(millis, LOOK_MILLIS) : LOOK_MILLIS;
  }

  private void runAndLog(Runnable errand) {
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
    if (pending.full()) {
      refuse(pending.removeOldest(), "others wait to prove that they know a secret");
    }
    SocketChannel channel;
    try {
      channel = server.accept();
    } catch (IOException e) {
      survive(e);
      return;
    }
    if (channel != null) {
      greet(channel);
    }
  }

  /**
   * Goes on after a failure, such as no file descriptors left: the oldest stranger's is freed. The
   * warning waits until it is, since a logger may need one.
   */
  private void survive(IOException failure) {
    PendingConnection oldest = pending.removeOldest();
    if (oldest != null) {
      oldest.connection().cut();
    }
    acceptFailure = failure;
    acceptAt = System.nanoTime() + AFTER_FAILED_ACCEPT_NANOS;
  }

  private void warnOfFailure() {
    String failure = acceptFailure.getMessage();
    acceptFailure = null;
    FAILED_ACCEPTS.log(log(), "a connection could not be accepted: " + failure);
  }

  private void greet(SocketChannel channel) {
    try {
      channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
      PendingConnection stranger = new PendingConnection(endpoint, this, channel);
      pending.add(stranger);
      stranger.connection().register(selector);
    } catch (IOException e) {
      noteRefusal("a connection", e.getMessage());
      TcpFailure.close(channel);
    }
  }

  private static void refuse(PendingConnection stranger, String why) {
    stranger.connection().refuse(why);
  }

  /** Logs, once a minute, that a connection was refused. */
  void noteRefusal(Object from, String why) {
    REFUSALS.log(log(), "refused a connection from " + from + ": " + why);
  }

  /** Keeps a connection whose other side has proved that it knows a secret of this process. */
  void park(PendingConnection known) {
    pending.remove(known);
    parked.add(known);
  }

  /** Forgets a connection that has gone where it wanted to go, or has ended. */
  void forget(PendingConnection connection) {
    pending.remove(connection);
    parked.remove(connection);
  }

  /** Lets in those whose world or secret has become known. */
  void admitParked() {
    waiting().forEach(PendingConnection::proceed);
  }

  private List<PendingConnection> waiting() {
    List<PendingConnection> all = new ArrayList<>(parked);
    all.addAll(pending.all());
    return all;
  }

  private void expirePending(long now) {
    for (PendingConnection connection : waiting()) {
      String why = connection.tooLate(now);
      if (why != null) {
        refuse(connection, why);
      }
    }
    for (SelectionKey key : selector.keys()) {
      if (key.attachment() instanceof Connection connection) {
        connection.cutIfLate(now);
      }
    }
  }

  /**
   * Ends after an error: the site forgets this loop, then all who depend on it hear why. That is
   * repeated while there is no memory for it.
   */
  private void end(Throwable failure) {
    long since = System.nanoTime();
    while (true) {
      try {
        attempt(failure, () -> failCommunicators(failure));
        attempt(failure, () -> failConnections(failure));
        attempt(failure, () -> closeSockets(server));
        log().error("this process no longer hears others", failure);
        return;
      } catch (OutOfMemoryError shortage) {
        MemoryShortage.pause(shortage, since);
      }
    }
  }

  private void failCommunicators(Throwable failure) {
    endpoint.forgetFailed(this);
    for (CommunicatorEndpoint communicator : endpoint.communicators()) {
      attempt(
          failure,
          () -> communicator.failHere("its process no longer hears others, because of " + failure));
    }
    String here = endpoint.address().toString();
    for (BootstrapTarget target : endpoint.bootstrapTargets()) {
      attempt(failure, () -> target.fail(here + " no longer hears others: " + failure));
    }
  }

  private void failConnections(Throwable failure) {
    for (SelectionKey key : List.copyOf(selector.keys())) {
      if (key.attachment() instanceof Connection connection) {
        attempt(failure, () -> connection.fail("this process no longer hears others: " + failure));
      }
    }
  }

  private static void attempt(Throwable failure, Runnable step) {
    try {
      step.run();
    } catch (OutOfMemoryError shortage) {
      throw shortage;
    } catch (RuntimeException | Error e) {
      CloseAll.suppress(failure, e);
    }
  }

  /** Finds the logger only when there is something to say, since most programs never need it. */
  private static Logger log() {
    return LogManager.getLogger(EventLoop.class);
  }

  private void closeSockets(ServerSocketChannel listener) {
    try {
      if (listener != null) {
        listener.close();
      }
      for (SelectionKey key : selector.keys()) {
        key.channel().close();
      }
      selector.close();
    } catch (IOException e) {
      log().warn("the listening socket could not be closed", e);
    }
  }
}
