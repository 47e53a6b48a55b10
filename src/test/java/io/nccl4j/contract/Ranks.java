package io.nccl4j.contract;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.UniqueId;
import java.util.List;
import java.util.stream.IntStream;

/** A communicator as a test sees it: all its ranks, each driven by a thread of its own. */
final class Ranks implements AutoCloseable {
  /** What one rank does. */
  interface Body {
    void run(Rank rank) throws Exception;
  }

  private final Backend backend;
  private final Rank[] ranks;

  private Ranks(Backend backend, int size) {
    this.backend = backend;
    this.ranks = new Rank[size];
  }

  /** Makes a communicator of so many ranks on a backend of its own. */
  static Ranks of(BackendUnderTest underTest, int size) {
    return of(underTest, size, underTest.config());
  }

  static Ranks of(BackendUnderTest underTest, int size, CommunicatorConfig config) {
    Backend backend = underTest.open(size);
    Ranks made = new Ranks(backend, size);
    UniqueId id = backend.newUniqueId();
    RankThreads.run(
        size,
        rank -> made.ranks[rank] = new Rank(backend.communicator(id, size, rank, config)),
        () -> {});
    return made;
  }

  Backend backend() {
    return backend;
  }

  int size() {
    return ranks.length;
  }

  Rank rank(int rank) {
    return ranks[rank];
  }

  List<Rank> all() {
    return List.of(ranks);
  }

  List<Communicator> communicators() {
    return all().stream().map(Rank::comm).toList();
  }

  /** Runs the body on every rank at the same time; then frees the buffers it made. */
  void each(Body body) {
    RankThreads.run(
        ranks.length,
        rank -> {
          body.run(ranks[rank]);
          ranks[rank].free();
        },
        this::abort);
  }

  /** Runs the body on every rank, in rank order, from this thread; frees nothing. */
  void inOneThread(Body body) {
    for (Rank rank : ranks) {
      try {
        body.run(rank);
      } catch (Exception failure) {
        throw RankThreads.unchecked(failure);
      }
    }
  }

  void abort() {
    IntStream.range(0, ranks.length).forEach(rank -> ranks[rank].comm().abort());
  }

  @Override
  public void close() {
    RankThreads.run(ranks.length, rank -> ranks[rank].close(), this::abort);
    backend.close();
  }
}
