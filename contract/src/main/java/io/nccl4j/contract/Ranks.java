package io.nccl4j.contract;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.NcclException;
import io.nccl4j.UniqueId;
import io.nccl4j.fixtures.Creation;
import io.nccl4j.fixtures.RankThreads;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/**
 * All ranks of a communicator under test, each driven by its own thread. If the suite runs in
 * several processes ({@link ProcessRank}), a communicator that spans them has one rank in this
 * process, and a test that uses any other rank is skipped.
 */
final class Ranks implements AutoCloseable {
  /** The work of one rank. */
  interface Body {
    void run(Rank rank) throws Exception;
  }

  private final Backend backend;
  private final Rank[] ranks;
  private BackendUnderTest owner;

  private Ranks(Backend backend, int size) {
    this.backend = backend;
    this.ranks = new Rank[size];
  }

  /**
   * Returns the ranks of an earlier test of this topic, if the backend shares them and that test
   * left them intact; otherwise creates them.
   */
  static Ranks of(BackendUnderTest underTest, int size) {
    if (!underTest.sharesRanks() || ProcessRank.current().isPresent()) {
      return unshared(underTest, size);
    }
    Ranks ranks = SharedRanks.take(underTest, size);
    if (ranks == null) {
      ranks = unshared(underTest, size);
      ranks.owner = underTest;
    }
    return ranks;
  }

  /** Creates ranks for a test of what happens when communicators are created, end or fail. */
  static Ranks unshared(BackendUnderTest underTest, int size) {
    return of(underTest, size, underTest.config());
  }

  /** Opens a backend and creates a communicator of {@code size} ranks on it. */
  static Ranks of(BackendUnderTest underTest, int size, CommunicatorConfig config) {
    if (size > 1 && ProcessRank.current().isPresent()) {
      return ofThisProcess(underTest, size, config, ProcessRank.current().get());
    }
    Backend backend = underTest.open(size);
    Ranks ranks = new Ranks(backend, size);
    UniqueId id = backend.newUniqueId();
    RankThreads.run(
        size,
        rank -> ranks.ranks[rank] = new Rank(backend.newCommunicator(id, size, rank, config)));
    return ranks;
  }

  /**
   * Creates a communicator that does not block and has the short timeout, for calls that are meant
   * to time out.
   */
  static Ranks withShortTimeout(BackendUnderTest underTest, int size) {
    return withTimeout(underTest, size, underTest.shortTimeout(), rank -> {});
  }

  /**
   * Creates a communicator that does not block and has a timeout that later calls are meant to
   * exceed, and runs a body on its ranks like {@link #each}. The timeout limits both, which are
   * repeated together if a busy machine does not finish them in time.
   */
  static Ranks withTimeout(BackendUnderTest underTest, int size, Duration timeout, Body body) {
    ProcessRank.assumeNone(size);
    CommunicatorConfig config = underTest.config().withBlocking(false).withTimeout(timeout);
    Backend backend = underTest.open(size);
    int available = backend.devices().size();
    int[] devices = IntStream.range(0, size).map(rank -> rank % available).toArray();
    return Creation.retry(
        NcclException.class,
        () -> {
          List<Communicator> created = backend.newCommunicators(devices, config);
          Ranks ranks = new Ranks(backend, size);
          Arrays.setAll(ranks.ranks, rank -> new Rank(created.get(rank)));
          try {
            ranks.each(body);
          } catch (RuntimeException failed) {
            ranks.abort();
            ranks.closeRanks();
            throw failed;
          }
          return ranks;
        });
  }

  private static Ranks ofThisProcess(
      BackendUnderTest underTest, int size, CommunicatorConfig config, int localRank) {
    ProcessRank.assumeSize(size);
    Backend backend = underTest.open(size);
    Ranks ranks = new Ranks(backend, size);
    UniqueId id = ProcessRank.shareId(backend::newUniqueId);
    ranks.ranks[localRank] = new Rank(backend.newCommunicator(id, size, localRank, config));
    return ranks;
  }

  Backend backend() {
    return backend;
  }

  int size() {
    return ranks.length;
  }

  Rank rank(int rank) {
    // Every process skips the test, so that none waits for another.
    ProcessRank.assumeNone(ranks.length);
    return ranks[rank];
  }

  List<Rank> all() {
    return IntStream.range(0, ranks.length).mapToObj(this::rank).toList();
  }

  private List<Rank> local() {
    return Stream.of(ranks).filter(Objects::nonNull).toList();
  }

  List<Communicator> communicators() {
    return all().stream().map(Rank::comm).toList();
  }

  /** Runs the body on every rank concurrently, then frees the buffers that it allocated. */
  void each(Body body) {
    List<Rank> local = local();
    RankThreads.run(
        local.size(),
        i -> {
          body.run(local.get(i));
          local.get(i).free();
        },
        this::abort);
  }

  /** Runs the body for every rank, in rank order, on this thread. Frees nothing. */
  void inOneThread(Body body) {
    for (Rank rank : all()) {
      try {
        body.run(rank);
      } catch (Exception failure) {
        throw RankThreads.unchecked(failure);
      }
    }
  }

  void abort() {
    Communicator.abortAll(local().stream().map(Rank::comm).toList());
  }

  /** Returns whose tests share these ranks, or null if they are not shared. */
  BackendUnderTest owner() {
    return owner;
  }

  /** Frees what the test allocated. Closes the ranks, unless other tests can use them. */
  @Override
  public void close() {
    boolean kept = false;
    try {
      if (owner != null && local().stream().allMatch(Rank::intact)) {
        List<Rank> local = local();
        RankThreads.run(local.size(), i -> local.get(i).free(), this::abort);
        kept = true;
      }
    } finally {
      if (!kept) {
        closeAll();
      }
    }
    if (kept) {
      SharedRanks.keep(this);
    }
  }

  void closeAll() {
    try {
      closeRanks();
    } finally {
      backend.close();
    }
  }

  private void closeRanks() {
    List<Rank> local = local();
    RankThreads.run(local.size(), i -> local.get(i).close(), this::abort);
  }
}
