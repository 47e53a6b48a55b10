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
import io.nccl4j.NcclException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.Recovery;
import io.nccl4j.ReduceOp;
import io.nccl4j.ShrinkMode;
import io.nccl4j.fixtures.RankThreads;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Communicators without some of their parent's ranks, after an orderly end or an abort. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class ShrinkContract {
  private static final Duration LIMIT = Duration.ofSeconds(15);

  abstract BackendUnderTest underTest();

  @BeforeEach
  void assumeSupported() {
    try (Backend backend = underTest().open(1)) {
      assumeTrue(backend.supports(Feature.SHRINK), "needs a newer library");
    }
  }

  List<Integer> rankCounts() {
    return underTest().rankCounts(2, 3, 4, 8);
  }

  @ParameterizedTest(name = "{0} ranks", allowZeroInvocations = true)
  @MethodSource("rankCounts")
  void survivorsKeepTheirOrder(int n) {
    try (Ranks ranks = Ranks.unshared(underTest(), n)) {
      ranks.each(
          rank -> {
            if (rank.rank() == n / 2) {
              return;
            }
            try (Communicator rest = shrink(rank, Set.of(n / 2), ShrinkMode.FINISH_FIRST)) {
              assertEquals(n - 1, rest.size());
              assertEquals(rank.rank() < n / 2 ? rank.rank() : rank.rank() - 1, rest.rank());
              assertEquals(rank.comm().device(), rest.device());
              assertEquals(n * (n - 1) / 2 - n / 2, sum(rank, rest, rank.rank()));
              assertEquals(
                  IntStream.range(0, n).filter(r -> r != n / 2).boxed().toList(),
                  rest.parentRanks(rank.stream()));
            }
          });
    }
  }

  @ParameterizedTest(name = "{0} ranks", allowZeroInvocations = true)
  @MethodSource("rankCounts")
  void finishFirstShrinkLeavesParentUsable(int n) {
    try (Ranks ranks = Ranks.unshared(underTest(), n)) {
      ranks.each(
          rank -> {
            if (rank.rank() > 0) {
              try (Communicator rest = shrink(rank, Set.of(0), ShrinkMode.FINISH_FIRST)) {
                assertEquals(n - 1, rest.size());
              }
            }
            assertEquals(n, sum(rank, rank.comm(), 1), "the parent still works with all ranks");
            assertFalse(rank.comm().isAborted());
            try (Communicator all = rank.comm().split(0, 0)) {
              assertEquals(n, all.size(), "all ranks can split the parent");
            }
          });
    }
  }

  @ParameterizedTest(name = "{0} ranks", allowZeroInvocations = true)
  @MethodSource("rankCounts")
  void shrinkToOneRankWorks(int n) {
    try (Ranks ranks = Ranks.unshared(underTest(), n)) {
      Rank last = ranks.rank(n - 1);
      Set<Integer> others = ConcurrentHashMap.newKeySet();
      for (int rank = 0; rank < n - 1; rank++) {
        others.add(rank);
      }
      try (Communicator single = shrink(last, others, ShrinkMode.FINISH_FIRST)) {
        assertEquals(1, single.size());
        assertEquals(7, sum(last, single, 7));
      }
    }
  }

  @Test
  void finishFirstShrinkCompletesEnqueuedWork() {
    assumeTrue(underTest().maxRanks() > 2, "needs three ranks");
    try (Ranks ranks = Ranks.unshared(underTest(), 3)) {
      ranks.each(
          rank -> {
            Buffer value = rank.ints(1);
            for (int i = 0; i < 4; i++) {
              rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream());
            }
            if (rank.rank() > 0) {
              shrink(rank, Set.of(0), ShrinkMode.FINISH_FIRST).close();
              assertTrue(rank.stream().isComplete(), "the shrink waited");
            }
            assertEquals(81, rank.downloadInts(value)[0]);
          });
    }
  }

  @Test
  void survivorsContinueWithoutSilentRank() {
    Ranks ranks = stuckWithoutRank(2, 3);
    RankThreads.run(
        2,
        r -> {
          Rank rank = ranks.rank(r);
          try (Communicator rest =
              assertTimeout(LIMIT, () -> shrink(rank, Set.of(2), ShrinkMode.ABORT_FIRST))) {
            assertTrue(reportedFailures(rank) > 0, "unfinished work is reported");
            assertEquals(2, rest.size());
            assertEquals(2, sum(rank, rest, 1), "on the stream that was stuck");
            assertTrue(rank.comm().isAborted());
          }
          rank.free();
        },
        ranks::abort);
    ranks.close();
  }

  @Test
  void survivorsRecoverWithoutRankThatTheyKnowToBeLost() {
    Ranks ranks = stuckWithoutRank(2, 3);
    RankThreads.run(
        2,
        r -> {
          Rank rank = ranks.rank(r);
          NcclException failure =
              assertThrows(
                  NcclException.class, () -> rank.stream().synchronize(Duration.ofMillis(300)));
          Recovery recovery = Recovery.defaults().withLostRanks(Set.of(2));
          try (Communicator rest =
              assertTimeout(LIMIT, () -> recovery.recover(rank.comm(), failure))) {
            assertTrue(reportedFailures(rank) > 0, "unfinished work is reported");
            assertEquals(2, rest.size());
            assertEquals(2, sum(rank, rest, 1));
          }
          rank.free();
        },
        ranks::abort);
    ranks.close();
  }

  @Test
  void recoveryRefusesLostRanksOutOfRange() {
    try (Ranks ranks = Ranks.unshared(underTest(), 1)) {
      NcclException failure = new NcclException("test", 6, "a failure", "");
      Recovery recovery = Recovery.defaults().withLostRanks(Set.of(1));
      Communicator comm = ranks.rank(0).comm();
      IllegalArgumentException refused =
          assertThrows(IllegalArgumentException.class, () -> recovery.recover(comm, failure));
      assertEquals("lost rank is 1; it must be from 0 to 0", refused.getMessage());
      assertThrows(NullPointerException.class, () -> Recovery.defaults().recover(comm, null));
      IllegalArgumentException own =
          assertThrows(
              IllegalArgumentException.class,
              () ->
                  Recovery.defaults()
                      .withLostRanks(Set.of(0))
                      .withMinority(true)
                      .recover(comm, failure));
      assertTrue(own.getMessage().contains("this rank itself"), own::toString);
    }
  }

  @Test
  void abortedRankIsExcludedThenAnotherFromSameParent() {
    assumeTrue(underTest().maxRanks() > 3, "needs four ranks");
    Ranks ranks = Ranks.unshared(underTest(), 4);
    ranks.rank(1).comm().abort();
    RankThreads.run(
        3,
        i -> {
          Rank rank = ranks.rank(i == 0 ? 0 : i + 1);
          try (Communicator three = shrink(rank, Set.of(1), ShrinkMode.ABORT_FIRST)) {
            assertEquals(3, sum(rank, three, 1));
          }
          if (rank.rank() != 3) {
            try (Communicator two = shrink(rank, Set.of(1, 3), ShrinkMode.ABORT_FIRST)) {
              assertEquals(2, sum(rank, two, 1), "the same parent, shrunk again");
            }
          }
        },
        ranks::abort);
    ranks.close();
  }

  @Test
  void parentRefusesOperationsAfterAbortingShrink() {
    assumeTrue(underTest().maxRanks() > 1, "needs two ranks");
    Ranks ranks = Ranks.unshared(underTest(), 2);
    Rank rank = ranks.rank(0);
    Buffer value = rank.ints(1);
    shrink(rank, Set.of(1), ShrinkMode.ABORT_FIRST).close();
    IllegalStateException refused =
        assertThrows(
            IllegalStateException.class,
            () -> rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream()));
    assertTrue(refused.getMessage().startsWith("revoked: Communicator["), refused::toString);
    assertThrows(IllegalStateException.class, () -> rank.comm().newGrowId());
    assertTrue(rank.comm().isOpen(), "the parent must still be closed");
    rank.comm().close();
    assertFalse(rank.comm().isOpen());
    ranks.rank(1).comm().abort();
    ranks.close();
  }

  @Test
  void shrinkTimesOutIfSurvivorNeverJoins() {
    assumeTrue(underTest().maxRanks() > 2, "needs three ranks");
    Ranks ranks = Ranks.withShortTimeout(underTest(), 3);
    NcclTimeoutException thrown =
        assertTimeout(
            LIMIT,
            () ->
                assertThrows(
                    NcclTimeoutException.class,
                    () -> shrink(ranks.rank(0), Set.of(1), ShrinkMode.FINISH_FIRST)));
    underTest().assertShortTimeout(thrown);
    ranks.abort();
    ranks.close();
  }

  @Test
  void interruptEndsShrinkAndIsPreserved() throws Exception {
    assumeTrue(underTest().maxRanks() > 2, "needs three ranks");
    Ranks ranks = Ranks.of(underTest(), 3, underTest().config().withBlocking(false));
    CompletableFuture<Boolean> interrupted = new CompletableFuture<>();
    Thread thread =
        Thread.ofPlatform()
            .daemon()
            .start(
                () -> {
                  try {
                    shrink(ranks.rank(0), Set.of(1), ShrinkMode.FINISH_FIRST);
                    interrupted.completeExceptionally(
                        new AssertionError("the shrink succeeded without rank 2"));
                  } catch (CancellationException expected) {
                    interrupted.complete(Thread.interrupted());
                  } catch (RuntimeException another) {
                    interrupted.completeExceptionally(another);
                  }
                });
    Thread.sleep(100);
    thread.interrupt();
    assertTrue(interrupted.get(LIMIT.toSeconds(), TimeUnit.SECONDS));
    ranks.abort();
    ranks.close();
  }

  @Test
  void invalidExcludedRanksAreRefused() {
    assumeTrue(underTest().maxRanks() > 1, "needs two ranks");
    try (Ranks ranks = Ranks.unshared(underTest(), 2)) {
      Rank rank = ranks.rank(0);
      refused("excludedRanks is empty; a shrink must exclude at least one rank", rank, Set.of());
      refused("excluded rank is 2; it must be from 0 to 1", rank, Set.of(2));
      refused("excluded rank is -1; it must be from 0 to 1", rank, Set.of(-1));
      refused(
          "excludedRanks has 0, this rank itself; only the remaining ranks call shrink",
          rank,
          Set.of(0));
      Communicator comm = rank.comm();
      CommunicatorConfig config = underTest().config();
      assertThrows(
          NullPointerException.class, () -> comm.shrink(null, ShrinkMode.FINISH_FIRST, config));
      assertThrows(NullPointerException.class, () -> comm.shrink(Set.of(1), null, config));
      assertThrows(
          NullPointerException.class, () -> comm.shrink(Set.of(1), ShrinkMode.FINISH_FIRST, null));
      IllegalArgumentException device =
          assertThrows(
              IllegalArgumentException.class,
              () ->
                  comm.shrink(
                      Set.of(1), ShrinkMode.FINISH_FIRST, config.withDevice(comm.device() + 1)));
      assertTrue(device.getMessage().contains("a shrink keeps the parent's"), device::toString);
    }
  }

  private void refused(String message, Rank rank, Set<Integer> excluded) {
    assertEquals(
        message,
        assertThrows(
                IllegalArgumentException.class,
                () -> shrink(rank, excluded, ShrinkMode.FINISH_FIRST))
            .getMessage());
  }

  /** Returns ranks that all wait in a collective for the absent one. */
  private Ranks stuckWithoutRank(int absent, int n) {
    assumeTrue(underTest().maxRanks() >= n, "needs " + n + " ranks");
    Ranks ranks = Ranks.of(underTest(), n, underTest().config().withBlocking(false));
    ranks.each(
        rank -> {
          Buffer warm = rank.ints(1);
          rank.comm().allReduce(warm, warm, ReduceOp.SUM, rank.stream());
        });
    for (int r = 0; r < n; r++) {
      Rank rank = ranks.rank(r);
      if (r != absent) {
        Buffer value = rank.ints(1);
        rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream());
      }
    }
    return ranks;
  }

  /** Returns how often the stream reports a failure: this rank's abort, or a peer's before it. */
  private static int reportedFailures(Rank rank) {
    for (int times = 0; ; times++) {
      try {
        rank.stream().synchronize(LIMIT);
        return times;
      } catch (NcclException failure) {
        assertTrue(times < 2, failure::toString);
      }
    }
  }

  private Communicator shrink(Rank rank, Set<Integer> excluded, ShrinkMode mode) {
    return rank.comm().shrink(excluded, mode, rank.comm().config());
  }

  private static int sum(Rank rank, Communicator comm, int mine) {
    Buffer value = rank.ints(mine);
    comm.allReduce(value, value, ReduceOp.SUM, rank.stream());
    return rank.downloadInts(value)[0];
  }
}
