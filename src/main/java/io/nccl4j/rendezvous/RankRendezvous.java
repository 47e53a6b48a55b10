package io.nccl4j.rendezvous;

import io.nccl4j.Backend;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.auth.SharedSecret;
import io.nccl4j.internal.rendezvous.ExchangeFailedException;
import io.nccl4j.internal.rendezvous.FileStore;
import io.nccl4j.internal.rendezvous.GatherExchange;
import io.nccl4j.internal.rendezvous.IdExchange;
import io.nccl4j.internal.rendezvous.RankBackend;
import io.nccl4j.internal.rendezvous.Store;
import io.nccl4j.internal.rendezvous.StoreClient;
import io.nccl4j.internal.rendezvous.StoreExchange;
import io.nccl4j.internal.rendezvous.StoreServer;
import io.nccl4j.internal.rendezvous.TorchStore;
import io.nccl4j.internal.util.Arguments;
import io.nccl4j.internal.util.CloseAll;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Loggers;
import java.io.Closeable;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Function;
import java.util.function.Supplier;
import org.apache.logging.log4j.Logger;

/**
 * Every rendezvous of this package. Counts rounds, allows one at a time, and rejects further rounds
 * after the first failure.
 */
final class RankRendezvous implements Rendezvous {
  private static final Logger LOG = Loggers.of(RankRendezvous.class);

  /** Longer than ranks that are started together usually wait. */
  private static final Duration LONG_WAIT = Duration.ofSeconds(10);

  private static final int HIGHEST_PORT = 65535;

  private final RankInfo rankInfo;
  private final String place;
  private final IdExchange exchange;
  private final Closeable server;
  private final ReentrantLock inUse = new ReentrantLock();
  private int rounds;
  private boolean failed;
  private volatile boolean closed;

  /** Creates the exchange of a rendezvous, which can ask it whether it is still open. */
  @FunctionalInterface
  private interface Exchanges {
    IdExchange newExchange(Runnable checkStillOpen);
  }

  /**
   * Creates the rendezvous of one rank.
   *
   * @param place describes where the ranks meet
   * @param server what to close with this rendezvous
   */
  private RankRendezvous(RankInfo rankInfo, String place, Closeable server, Exchanges exchanges) {
    this.rankInfo = rankInfo;
    this.place = place;
    this.server = server;
    this.exchange = exchanges.newExchange(this::checkStillOpen);
  }

  private static RankRendezvous in(
      String place,
      RankInfo rankInfo,
      SharedSecret secret,
      Closeable server,
      boolean reopens,
      Supplier<Store> stores) {
    return new RankRendezvous(
        rankInfo,
        place,
        server,
        checkStillOpen ->
            new StoreExchange(rankInfo.jobRank(), secret, place, stores, reopens, checkStillOpen));
  }

  static RankRendezvous tcp(String host, int port, SharedSecret secret, RankInfo rankInfo) {
    checkAddress(host, port, "rank 0");
    String place = "the store of rank 0 at " + host + ":" + port;
    if (Objects.requireNonNull(rankInfo, "rankInfo").rank() > 0 || rankInfo.size() == 1) {
      return in(
          place,
          rankInfo,
          secret,
          () -> {},
          true,
          () -> new StoreClient(host, port, rankInfo.jobRank(), secret, place));
    }
    try {
      StoreServer server =
          new StoreServer(listeningAddress(host, port), rankInfo.jobRank(), secret);
      return in(place, rankInfo, secret, server, false, server::store);
    } catch (ExchangeFailedException e) {
      throw failed(e);
    }
  }

  static RankRendezvous loopback(int port, RankInfo rankInfo) {
    if (Objects.requireNonNull(rankInfo, "rankInfo").rank() == 0) {
      LOG.warn(
          "Rendezvous on this host's port {} without a secret: any user of this host can take part."
              + " Set {} to prevent that.",
          port,
          Secret.VARIABLE);
    }
    String host = InetAddress.getLoopbackAddress().getHostAddress();
    return tcp(host, port, SharedSecret.none(), rankInfo);
  }

  static RankRendezvous torchStore(
      String host, int port, Optional<Secret> secret, RankInfo rankInfo) {
    Objects.requireNonNull(rankInfo, "rankInfo");
    SharedSecret shared =
        Objects.requireNonNull(secret, "secret").map(Secret::shared).orElse(SharedSecret.none());
    checkAddress(host, port, "the store");
    String place = "the store at " + host + ":" + port;
    return in(place, rankInfo, shared, () -> {}, false, () -> new TorchStore(host, port, place));
  }

  static RankRendezvous files(Path directory, RankInfo rankInfo) {
    Objects.requireNonNull(rankInfo, "rankInfo");
    Path absolute = Objects.requireNonNull(directory, "directory").toAbsolutePath();
    try {
      if (!Files.isDirectory(absolute)) {
        boolean posix = absolute.getFileSystem().supportedFileAttributeViews().contains("posix");
        if (posix) {
          Files.createDirectories(
              absolute,
              PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
        } else {
          Files.createDirectories(absolute);
        }
      }
    } catch (IOException e) {
      throw new RendezvousException(
          absolute + " is not a directory and cannot be created: " + e, e);
    }
    return in(
        absolute.toString(),
        rankInfo,
        SharedSecret.none(),
        () -> {},
        false,
        () -> new FileStore(absolute));
  }

  static RankRendezvous allGather(RankInfo rankInfo, Function<String, List<String>> gather) {
    Objects.requireNonNull(rankInfo, "rankInfo");
    Objects.requireNonNull(gather, "gather");
    return new RankRendezvous(
        rankInfo,
        "an all-gather",
        () -> {},
        checkStillOpen -> new GatherExchange(rankInfo.jobRank(), gather, checkStillOpen));
  }

  /** Returns the rendezvous of a single rank. */
  static RankRendezvous alone(RankInfo rankInfo) {
    return allGather(rankInfo, List::of);
  }

  private static void checkAddress(String host, int port, String of) {
    if (Objects.requireNonNull(host, "host").isBlank()) {
      throw new IllegalArgumentException("host is empty; it must name the host of " + of);
    }
    Arguments.inRange(port, "port", 1, HIGHEST_PORT);
  }

  /** Returns whether a host name or address denotes the loopback interface on every host. */
  static boolean isLoopback(String host) {
    if (host.equalsIgnoreCase("localhost")) {
      return true;
    }
    try {
      return InetAddress.ofLiteral(host).isLoopbackAddress();
    } catch (IllegalArgumentException e) {
      // A name that may resolve to different addresses on different hosts.
      return false;
    }
  }

  private static InetSocketAddress listeningAddress(String host, int port) {
    if (!isLoopback(host)) {
      return new InetSocketAddress(port);
    }
    return host.equalsIgnoreCase("localhost")
        ? new InetSocketAddress(InetAddress.getLoopbackAddress(), port)
        : new InetSocketAddress(InetAddress.ofLiteral(host), port);
  }

  @Override
  public int rank() {
    return rankInfo.rank();
  }

  @Override
  public int size() {
    return rankInfo.size();
  }

  @Override
  public OptionalInt localRank() {
    return rankInfo.localRank();
  }

  @Override
  public UniqueId exchange(Supplier<UniqueId> maker) {
    Objects.requireNonNull(maker, "maker");
    return exchange(RankBackend.UNKNOWN, () -> rank() == 0 ? maker.get() : null);
  }

  @Override
  public UniqueId exchange(Backend backend) {
    AtomicReference<UniqueId> created = new AtomicReference<>();
    try {
      return exchange(RankBackend.of(backend), () -> prepare(backend, created));
    } catch (RuntimeException | Error e) {
      UniqueId unused = created.get();
      if (unused != null) {
        CloseAll.after(e, () -> backend.closeUniqueId(unused));
      }
      throw e;
    }
  }

  private UniqueId prepare(Backend backend, AtomicReference<UniqueId> created) {
    if (rank() == 0) {
      created.set(backend.newUniqueId());
    } else {
      // A rank that cannot make its communicator should fail before it takes the id.
      backend.devices();
    }
    return created.get();
  }

  UniqueId exchange(RankBackend backend, Supplier<UniqueId> part) {
    if (inUse.isHeldByCurrentThread() || !inUse.tryLock()) {
      throw new IllegalStateException(this + " is already in an exchange; it allows one at a time");
    }
    try {
      return nextRound(backend, part);
    } finally {
      inUse.unlock();
    }
  }

  private UniqueId nextRound(RankBackend backend, Supplier<UniqueId> part) {
    if (closed) {
      throw new IllegalStateException(this + " is closed");
    }
    if (failed) {
      throw new IllegalStateException(
          this + " failed in round " + rounds + "; all ranks must create a new one");
    }
    failed = true;
    rounds++;
    Deadline deadline = Deadline.after(rankInfo.timeout());
    try {
      UniqueId id = round(backend, () -> checked(part.get()), deadline);
      failed = false;
      return id;
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw releasedAfter(new RendezvousException(this + " was interrupted in round " + rounds, e));
    } catch (ExchangeFailedException e) {
      throw releasedAfter(failed(e));
    } catch (RuntimeException | Error e) {
      releasedAfter(e);
      throw e;
    }
  }

  private UniqueId checked(UniqueId id) {
    if (rank() == 0 && id == null) {
      throw new NullPointerException("maker returned null in round " + rounds);
    }
    return id;
  }

  /** Returns the public exception for a failure, with the same message and cause. */
  private static RendezvousException failed(ExchangeFailedException failure) {
    Throwable cause = failure.getCause();
    return new RendezvousException(failure.getMessage(), cause == null ? failure : cause);
  }

  private UniqueId round(RankBackend backend, Supplier<UniqueId> part, Deadline deadline)
      throws InterruptedException, ExchangeFailedException {
    if (size() == 1) {
      return part.get();
    }
    int round = rounds;
    Thread reminder = Thread.ofVirtual().start(() -> logLongWait(round, deadline));
    try {
      return exchange.exchange(round, backend, part, deadline);
    } finally {
      reminder.interrupt();
    }
  }

  /** Logs once that other ranks are late, so that a waiting program does not look hung. */
  private void logLongWait(int round, Deadline deadline) {
    try {
      Thread.sleep(Math.min(LONG_WAIT.toMillis(), deadline.remainingMillis() / 2));
    } catch (InterruptedException e) {
      // Interrupted by the end of the exchange.
      return;
    }
    LOG.warn(
        "rank {} of {} is still waiting for all ranks in round {}; timeout in {} s: {}",
        rank(),
        size(),
        round,
        TimeUnit.NANOSECONDS.toSeconds(Math.max(0, deadline.remainingNanos())),
        this);
  }

  /** Releases the resources, since no further exchange is allowed; returns the failure. */
  private <T extends Throwable> T releasedAfter(T failure) {
    CloseAll.after(failure, this::release);
    return failure;
  }

  /** Throws if another thread has closed this rendezvous; called while an exchange waits. */
  private void checkStillOpen() {
    if (closed) {
      throw new RendezvousException(this + " was closed while it was exchanging an id");
    }
  }

  @Override
  public void close() {
    closed = true;
    release();
  }

  private void release() {
    CloseAll.all(List.of(() -> close(exchange), () -> close(server)));
  }

  private void close(Closeable part) {
    try {
      part.close();
    } catch (IOException e) {
      throw new RendezvousException(this + " could not be closed: " + e, e);
    }
  }

  @Override
  public String toString() {
    return "Rendezvous[rank " + rank() + " of " + size() + " at " + place + "]";
  }
}
