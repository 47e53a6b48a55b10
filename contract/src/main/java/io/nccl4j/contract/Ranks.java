package io.nccl4j.contract;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.UniqueId;
import io.nccl4j.fixtures.RankThreads;
import java.util.List;
import java.util.Objects;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/**
 * A communicator as a test sees it: all its ranks, each driven by a thread of its own. Where the
 * suite runs in several processes ({@link ProcessRank}), a communicator of them all has one rank
 * here, and a test that asks for another one is skipped.
 */
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
    if (size > 1 && ProcessRank.current().isPresent()) {
      return ofOneHere(underTest, size, config, ProcessRank.current().get());
    }
    Backend backend = underTest.open(size);
    Ranks made = new Ranks(backend, size);
    UniqueId id = backend.newUniqueId();
    RankThreads.run(
        size, rank -> made.ranks[rank] = new Rank(backend.newCommunicator(id, size, rank, config)));
    return made;
  }

  private static Ranks ofOneHere(
      BackendUnderTest underTest, int size, CommunicatorConfig config, int here) {
    ProcessRank.assumeSize(size);
    Backend backend = underTest.open(size);
    Ranks made = new Ranks(backend, size);
    UniqueId id = ProcessRank.meet(backend::newUniqueId);
    made.ranks[here] = new Rank(backend.newCommunicator(id, size, here, config));
    return made;
  }

  Backend backend() {
    return backend;
  }

  int size() {
    return ranks.length;
  }

  Rank rank(int rank) {
    // In every process alike, so that none waits for one that has skipped the test.
    ProcessRank.assumeNone(ranks.length);
    return ranks[rank];
  }

  List<Rank> all() {
    return IntStream.range(0, ranks.length).mapToObj(this::rank).toList();
  }

  private List<Rank> here() {
    return Stream.of(ranks).filter(Objects::nonNull).toList();
  }

  List<Communicator> communicators() {
    return all().stream().map(Rank::comm).toList();
  }

  /** Runs the body on every rank at the same time; then frees the buffers it made. */
  void each(Body body) {
    List<Rank> here = here();
    RankThreads.run(
        here.size(),
        i -> {
          body.run(here.get(i));
          here.get(i).free();
        },
        this::abort);
  }

  /** Runs the body on every rank, in rank order, from this thread; frees nothing. */
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
    here().forEach(rank -> rank.comm().abort());
  }

  @Override
  public void close() {
    List<Rank> here = here();
    RankThreads.run(here.size(), i -> here.get(i).close(), this::abort);
    backend.close();
  }
}
