package io.nccl4j.internal.reference.bootstrap;

import io.nccl4j.internal.auth.PendingConnections;
import io.nccl4j.internal.reference.transport.TcpFailure;
import io.nccl4j.internal.util.CloseAll;
import io.nccl4j.internal.util.Loggers;
import io.nccl4j.internal.util.PortRange;
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
import java.util.Optional;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.logging.log4j.Logger;

/**
 * The listening socket of a {@link ListeningEndpoint}, and the daemon thread that accepts its
 * connections and reads messages. The thread waits for nothing else. It ends when the endpoint no
 * longer needs it. An unexpected error ends it too, with all its connections; the endpoint then
 * starts another one on demand.
 */
final class EventLoop implements Runnable {
  private static final AtomicLong LOOPS = new AtomicLong();

  /** Logs refused connections; rate limited, since anyone can cause them. */
  private static final RateLimitedWarning REFUSALS = new RateLimitedWarning();

  private static final RateLimitedWarning FAILED_ACCEPTS = new RateLimitedWarning();

  private static final int BACKLOG = 4096;
  private static final long POLL_MILLIS = 500;
  private static final long AFTER_FAILED_ACCEPT_NANOS = TimeUnit.MILLISECONDS.toNanos(500);

  private final ListeningEndpoint endpoint;
  private final Selector selector;
  private final ServerSocketChannel server;
  private final SelectionKey acceptKey;
  private final InetSocketAddress address;
  private final PendingConnections<PendingConnection> pending;
  // Authenticated connections whose communicator this process does not have yet.
  private final List<PendingConnection> parked = new ArrayList<>();
  private final ConcurrentLinkedQueue<Runnable> tasks = new ConcurrentLinkedQueue<>();
  private long acceptAt = System.nanoTime();
  private IOException acceptFailure;
  private long expiredAt = System.nanoTime();
  private volatile boolean dead;

  /** Starts to listen. */
  EventLoop(ListeningEndpoint endpoint, InetAddress listenAddress) throws IOException {
    this.endpoint = endpoint;
    this.pending = new PendingConnections<>(PendingConnections.limit());
    this.selector = Selector.open();
    ServerSocketChannel opened = null;
    boolean started = false;
    try {
      Optional<PortRange> ports = PortRange.configured();
      if (ports.isPresent()) {
        opened = ports.get().listen(listenAddress, BACKLOG);
      } else {
        opened = ServerSocketChannel.open();
        opened.bind(new InetSocketAddress(listenAddress, 0), BACKLOG);
      }
      server = opened;
      server.configureBlocking(false);
      acceptKey = server.register(selector, SelectionKey.OP_ACCEPT);
      address = (InetSocketAddress) server.getLocalAddress();
      String name = "nccl4j-event-loop-" + LOOPS.incrementAndGet();
      Thread.ofPlatform().daemon().inheritInheritableThreadLocals(false).name(name).start(this);
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

  /** Runs a task in the thread of this event loop. */
  void execute(Runnable task) {
    tasks.add(task);
    selector.wakeup();
  }

  boolean idle() {
    return tasks.isEmpty();
  }

  /** Closes all connections, as the death of this process would; for tests. */
  void die() {
    dead = true;
    selector.wakeup();
  }

  @Override
  public void run() {
    try {
      do {
        selector.select(this::proceed, awaitAccept());
        for (Runnable task = tasks.poll(); task != null; task = tasks.poll()) {
          runAndLog(task);
        }
        long now = System.nanoTime();
        if (now - expiredAt >= TimeUnit.MILLISECONDS.toNanos(POLL_MILLIS)) {
          expiredAt = now;
          expirePending(now);
        }
      } while (!dead && !endpoint.endIfIdle(this));
      closeSockets(server);
    } catch (Throwable e) {
      // Catches everything: a process that listens without reading would keep its ranks waiting.
      end(e);
    }
  }

  /** Accepts, unless that has just failed; returns the time to wait in milliseconds. */
  private long awaitAccept() {
    long nanos = acceptAt - System.nanoTime();
    if (acceptFailure != null && nanos <= 0) {
      warnOfFailure();
    }
    acceptKey.interestOps(nanos > 0 ? 0 : SelectionKey.OP_ACCEPT);
    long millis = TimeUnit.NANOSECONDS.toMillis(nanos) + 1;
    return nanos > 0 ? Math.min(millis, POLL_MILLIS) : POLL_MILLIS;
  }

  private void runAndLog(Runnable task) {
    try {
      task.run();
    } catch (RuntimeException e) {
      log().error("a task of the event loop failed", e);
    }
  }

  private void proceed(SelectionKey key) {
    if (key.attachment() instanceof Connection connection) {
      try {
        connection.proceed();
      } catch (RuntimeException e) {
        log().error("a message from {} could not be processed", connection, e);
        connection.refuse("one of its messages could not be processed: " + e);
      }
    } else {
      accept();
    }
  }

  private void accept() {
    SocketChannel channel;
    try {
      channel = server.accept();
    } catch (IOException e) {
      recoverFromFailedAccept(e);
      return;
    }
    if (channel != null) {
      addPending(channel);
    }
  }

  /**
   * Continues after a failure to accept, for instance for lack of file descriptors: closes the
   * oldest pending connection. The warning is logged later, since a logger may need a descriptor.
   */
  private void recoverFromFailedAccept(IOException failure) {
    PendingConnection oldest = pending.removeOldest();
    if (oldest != null) {
      oldest.connection().closeNow();
    }
    acceptFailure = failure;
    acceptAt = System.nanoTime() + AFTER_FAILED_ACCEPT_NANOS;
  }

  private void warnOfFailure() {
    String failure = acceptFailure.getMessage();
    acceptFailure = null;
    FAILED_ACCEPTS.log(log(), "a connection could not be accepted: " + failure);
  }

  private void addPending(SocketChannel channel) {
    try {
      channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
      PendingConnection connection = new PendingConnection(endpoint, this, channel);
      PendingConnection oldest = pending.add(connection);
      if (oldest != null) {
        refuse(oldest, "too many connections are waiting to be authenticated");
      }
      connection.connection().register(selector);
    } catch (IOException e) {
      logRefusal("a connection", e.getMessage());
      TcpFailure.close(channel);
    }
  }

  private static void refuse(PendingConnection connection, String why) {
    connection.connection().refuse(why);
  }

  /** Logs that a connection was refused, at most once a minute. */
  void logRefusal(Object from, String why) {
    REFUSALS.log(log(), "refused a connection from " + from + ": " + why);
  }

  /** Keeps an authenticated connection until its communicator is known. */
  void park(PendingConnection connection) {
    pending.remove(connection);
    parked.add(connection);
  }

  /** Removes a connection that was handed over or has ended. */
  void forget(PendingConnection connection) {
    pending.remove(connection);
    parked.remove(connection);
  }

  /** Admits the connections whose communicator or secret has become known. */
  void admitParked() {
    allPending().forEach(PendingConnection::proceed);
  }

  private List<PendingConnection> allPending() {
    List<PendingConnection> all = new ArrayList<>(parked);
    all.addAll(pending.all());
    return all;
  }

  private void expirePending(long now) {
    for (PendingConnection connection : allPending()) {
      String why = connection.expiryReason(now);
      if (why != null) {
        refuse(connection, why);
      }
    }
    for (SelectionKey key : selector.keys()) {
      if (key.attachment() instanceof Connection connection) {
        connection.closeIfOverdue(now);
      }
    }
  }

  /**
   * Ends after an error: the endpoint drops this event loop, and everything that depends on it is
   * notified.
   */
  private void end(Throwable failure) {
    CloseAll.after(failure, () -> failCommunicators(failure));
    CloseAll.after(failure, () -> failConnections(failure));
    CloseAll.after(failure, () -> closeSockets(server));
    log().error("this process no longer receives messages of other processes", failure);
  }

  private void failCommunicators(Throwable failure) {
    endpoint.forgetFailed(this);
    for (CommunicatorEndpoint communicator : endpoint.communicators()) {
      CloseAll.after(
          failure,
          () ->
              communicator.failHere(
                  "its process no longer receives messages, because of " + failure));
    }
    String here = endpoint.address().toString();
    for (BootstrapTarget target : endpoint.bootstrapTargets()) {
      CloseAll.after(failure, () -> target.fail(here + " no longer receives messages: " + failure));
    }
  }

  private void failConnections(Throwable failure) {
    for (SelectionKey key : List.copyOf(selector.keys())) {
      if (key.attachment() instanceof Connection connection) {
        CloseAll.after(
            failure, () -> connection.fail("this process no longer receives messages: " + failure));
      }
    }
  }

  /** Looks the logger up on use, since most programs never need it. */
  private static Logger log() {
    return Loggers.of(EventLoop.class);
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
