package io.nccl4j.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Communicator;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Barriers: on the stream, in groups and graphs, and at the end of a communicator. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class BarrierContract {
  private static final long LIMIT_SECONDS = 20;

  abstract BackendUnderTest underTest();

  List<Integer> rankCounts() {
    return underTest().rankCounts(1, 2, 3, 5);
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void streamsWaitForTheLastRank(int n) {
    ProcessRank.assumeNone(n);
    CountDownLatch waiting = new CountDownLatch(n - 1);
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            // The first one connects, and then waits for the other ranks in the call itself.
            rank.comm().barrier(rank.stream());
            rank.stream().synchronize();
            if (rank.rank() == n - 1) {
              assertTrue(waiting.await(LIMIT_SECONDS, TimeUnit.SECONDS));
              rank.comm().barrier(rank.stream());
            } else {
              rank.comm().barrier(rank.stream());
              assertFalse(rank.stream().isComplete());
              waiting.countDown();
            }
            rank.stream().synchronize();
            assertTrue(rank.stream().isComplete());
          });
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void oneThreadDrivesAllRanksInGroup(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      for (int i = 0; i < 3; i++) {
        Group.run(() -> ranks.inOneThread(rank -> rank.comm().barrier(rank.stream())));
      }
      ranks.inOneThread(rank -> rank.stream().synchronize());
      ranks.inOneThread(rank -> assertTrue(rank.stream().isComplete()));
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void graphRunsBarrierThatWasCalledBefore(int n) {
    ProcessRank.assumeNone(n);
    CountDownLatch waiting = new CountDownLatch(n - 1);
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            rank.comm().barrier(rank.stream());
            rank.stream().synchronize();
            Runnable barrier = () -> rank.comm().barrier(rank.stream());
            try (Graph graph = Graph.capture(rank.stream(), barrier)) {
              if (rank.rank() == n - 1) {
                assertTrue(waiting.await(LIMIT_SECONDS, TimeUnit.SECONDS));
              }
              graph.launch(rank.stream());
              if (rank.rank() < n - 1) {
                assertFalse(rank.stream().isComplete());
                waiting.countDown();
              }
              rank.stream().synchronize();
            }
          });
    }
  }

  @Test
  void firstBarrierInCaptureIsRefused() {
    try (Ranks ranks = Ranks.unshared(underTest(), 1)) {
      Rank rank = ranks.rank(0);
      Throwable thrown =
          assertThrows(
              IllegalStateException.class,
              () -> Graph.capture(rank.stream(), () -> rank.comm().barrier(rank.stream())));
      assertEquals(
          "the first barrier of a communicator, which allocates its memory, is not possible in Graph.capture; only operations are",
          thrown.getMessage());
      rank.comm().barrier(rank.stream());
      rank.stream().synchronize();
    }
  }

  @Test
  void secondBarrierInGroupIsRefused() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      Rank rank = ranks.rank(0);
      Runnable twice =
          () -> {
            rank.comm().barrier(rank.stream());
            rank.comm().barrier(rank.stream());
          };
      Throwable thrown = assertThrows(IllegalArgumentException.class, () -> Group.run(twice));
      assertTrue(thrown.getMessage().startsWith("operations of one group"), thrown::toString);
    }
  }

  @Test
  void barrierNeedsOpenCommunicatorButNotItsBackend() {
    try (Ranks ranks = Ranks.unshared(underTest(), 1)) {
      Rank rank = ranks.rank(0);
      Communicator child = rank.comm().split(0, 0);
      ranks.backend().close();
      child.barrier(rank.stream());
      rank.stream().synchronize();
      child.abort();
      assertRefused("aborted: " + child, child, rank);
      rank.comm().close();
      assertRefused("closed: " + rank.comm(), rank.comm(), rank);
    }
  }

  private static void assertRefused(String message, Communicator comm, Rank rank) {
    Throwable thrown = assertThrows(IllegalStateException.class, () -> comm.barrier(rank.stream()));
    assertEquals(message, thrown.getMessage());
  }
}
