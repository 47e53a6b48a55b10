package io.nccl4j.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTimeout;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Feature;
import io.nccl4j.Group;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.ReduceOp;
import io.nccl4j.UniqueId;
import io.nccl4j.fixtures.RankThreads;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Communicators with all ranks of a parent and additional ones. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class GrowContract {
  private static final Duration LIMIT = Duration.ofSeconds(15);

  abstract BackendUnderTest underTest();

  @BeforeEach
  void assumeSupported() {
    try (Backend backend = underTest().open(1)) {
      assumeTrue(backend.supports(Feature.GROW), "needs a newer library");
    }
  }

  @ParameterizedTest(name = "{0} ranks become {1}, id from rank {2}")
  @CsvSource({"1, 2, 0", "2, 3, 0", "2, 4, 1", "3, 5, 1", "4, 8, 2"})
  void existingRanksKeepTheirNumbersAndNewOnesFollow(int before, int after, int root) {
    assumeTrue(underTest().maxRanks() >= after, "needs " + after + " ranks");
    CompletableFuture<UniqueId> id = new CompletableFuture<>();
    try (Ranks ranks = Ranks.unshared(underTest(), before)) {
      RankThreads.run(
          after,
          r -> {
            CommunicatorConfig config = onDevice(ranks, r);
            Communicator grown =
                r < before
                    ? grow(ranks.rank(r), after, r == root ? id : null)
                    : ranks.backend().join(id.get(15, TimeUnit.SECONDS), after, r, config);
            Rank rank = new Rank(grown);
            assertEquals(r, grown.rank());
            assertEquals(after, grown.size());
            Buffer value = rank.ints(1 << r);
            grown.allReduce(value, value, ReduceOp.SUM, rank.stream());
            assertEquals((1 << after) - 1, rank.downloadInts(value)[0]);
            assertThrows(IllegalStateException.class, () -> grown.parentRanks(rank.stream()));
            rank.close();
          },
          ranks::abort);
      ranks.each(rank -> assertEquals(before, sum(rank, rank.comm(), 1), "the parent still works"));
    }
  }

  @Test
  void communicatorGrowsAgainWithNewId() {
    assumeTrue(underTest().maxRanks() > 1, "needs two ranks");
    try (Ranks ranks = Ranks.unshared(underTest(), 1)) {
      Rank rank = ranks.rank(0);
      UniqueId previous = null;
      for (int round = 0; round < 3; round++) {
        UniqueId id = rank.comm().newGrowId();
        assertFalse(id.equals(previous), "the ids are unique");
        previous = id;
        RankThreads.run(
            2,
            r ->
                (r == 0
                        ? rank.comm().grow(2, id, underTest().config())
                        : ranks.backend().join(id, 2, 1, onDevice(ranks, 1)))
                    .close(),
            ranks::abort);
      }
    }
  }

  @Test
  void growIdWorksOnceAndOnlyOneIsPending() {
    assumeTrue(underTest().maxRanks() > 1, "needs two ranks");
    try (Ranks ranks = Ranks.unshared(underTest(), 1)) {
      Rank rank = ranks.rank(0);
      CommunicatorConfig config = underTest().config();
      UniqueId id = rank.comm().newGrowId();
      refused("call grow first", () -> rank.comm().newGrowId());
      refused("a split would invalidate it", () -> rank.comm().split(0, 0));
      refused("pass it to grow", () -> rank.comm().grow(2, config));
      UniqueId another = ranks.backend().newUniqueId();
      assertThrows(IllegalArgumentException.class, () -> rank.comm().grow(2, another, config));
      RankThreads.run(
          2,
          r ->
              (r == 0
                      ? rank.comm().grow(2, id, config)
                      : ranks.backend().join(id, 2, 1, onDevice(ranks, 1)))
                  .close(),
          ranks::abort);
      IllegalArgumentException used =
          assertThrows(IllegalArgumentException.class, () -> rank.comm().grow(2, id, config));
      assertTrue(used.getMessage().endsWith("there is none"), used::toString);
    }
  }

  @Test
  void growIdIsReusableIfGrowWasNotLaunched() {
    assumeTrue(underTest().maxRanks() > 1, "needs two ranks");
    try (Ranks ranks = Ranks.unshared(underTest(), 1)) {
      Communicator comm = ranks.rank(0).comm();
      CommunicatorConfig config = underTest().config();
      UniqueId id = comm.newGrowId();
      IllegalStateException thrown = new IllegalStateException("thrown by the lambda");
      refused(
          "thrown by the lambda",
          () ->
              Group.run(
                  () -> {
                    comm.grow(2, id, config);
                    throw thrown;
                  }));
      RankThreads.run(
          2,
          r ->
              (r == 0
                      ? comm.grow(2, id, config)
                      : ranks.backend().join(id, 2, 1, onDevice(ranks, 1)))
                  .close(),
          ranks::abort);
    }
  }

  @Test
  void growTimesOutIfNewRankNeverJoins() {
    CommunicatorConfig config = underTest().shortTimeoutConfig();
    try (Ranks ranks = Ranks.of(underTest(), 1, underTest().config().withBlocking(false))) {
      Rank rank = ranks.rank(0);
      UniqueId id = rank.comm().newGrowId();
      NcclTimeoutException thrown =
          assertTimeout(
              LIMIT,
              () ->
                  assertThrows(NcclTimeoutException.class, () -> rank.comm().grow(2, id, config)));
      underTest().assertShortTimeout(thrown);
      assertEquals(5, sum(rank, rank.comm(), 5), "the parent still works");
    }
  }

  @Test
  void joinTimesOutIfGrowIsNeverCalled() {
    assumeTrue(underTest().maxRanks() > 1, "needs two ranks");
    CommunicatorConfig config = underTest().shortTimeoutConfig();
    try (Ranks ranks = Ranks.of(underTest(), 1, underTest().config().withBlocking(false))) {
      UniqueId id = ranks.rank(0).comm().newGrowId();
      assertTimeout(
          LIMIT,
          () ->
              assertThrows(
                  NcclTimeoutException.class, () -> ranks.backend().join(id, 2, 1, config)));
    }
  }

  @Test
  void invalidSizeOrRankIsRefused() {
    try (Ranks ranks = Ranks.unshared(underTest(), 1)) {
      Communicator comm = ranks.rank(0).comm();
      CommunicatorConfig config = underTest().config();
      UniqueId id = ranks.backend().newUniqueId();
      assertEquals(
          "newSize is 1; it must be more than the communicator's size, 1",
          assertThrows(IllegalArgumentException.class, () -> comm.grow(1, config)).getMessage());
      assertEquals(
          "rank is 2; it must be from 0 to 1",
          assertThrows(IllegalArgumentException.class, () -> ranks.backend().join(id, 2, 2, config))
              .getMessage());
      assertThrows(NullPointerException.class, () -> comm.grow(2, null, config));
      assertThrows(NullPointerException.class, () -> comm.grow(2, (CommunicatorConfig) null));
      assertThrows(NullPointerException.class, () -> ranks.backend().join(null, 2, 1, config));
    }
  }

  private Communicator grow(Rank rank, int after, CompletableFuture<UniqueId> id) {
    if (id == null) {
      return rank.comm().grow(after, underTest().config());
    }
    UniqueId growId = rank.comm().newGrowId();
    id.complete(growId);
    return rank.comm().grow(after, growId, underTest().config());
  }

  /** NCCL needs one device per rank, and the backend was opened for the existing ranks. */
  private CommunicatorConfig onDevice(Ranks ranks, int rank) {
    return underTest().config().withDevice(rank % ranks.backend().devices().size());
  }

  private static void refused(String part, Runnable call) {
    IllegalStateException refused = assertThrows(IllegalStateException.class, call::run);
    assertTrue(refused.getMessage().contains(part), refused::toString);
  }

  private static int sum(Rank rank, Communicator comm, int mine) {
    Buffer value = rank.ints(mine);
    comm.allReduce(value, value, ReduceOp.SUM, rank.stream());
    return rank.downloadInts(value)[0];
  }
}
