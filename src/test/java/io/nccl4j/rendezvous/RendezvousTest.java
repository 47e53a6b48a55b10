package io.nccl4j.rendezvous;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.NcclTimeoutException;
import io.nccl4j.UniqueId;
import io.nccl4j.fixtures.IdleConnections;
import io.nccl4j.fixtures.LogLines;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.FutureTask;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

/** The exchange, in each of the stores. */
class RendezvousTest {
  /** Just enough for ranks that have arrived, on a busy machine. */
  private static final Duration ENOUGH = Duration.ofSeconds(4);

  private static FutureTask<UniqueId> exchange(Rendezvous rendezvous) {
    return RankThreads.start(() -> rendezvous.exchange(RankThreads::newId));
  }

  /** Starts an exchange, and waits until it is in progress. */
  private static FutureTask<UniqueId> exchanging(Rendezvous rendezvous) throws Exception {
    FutureTask<UniqueId> task = new FutureTask<>(() -> rendezvous.exchange(RankThreads::newId));
    RankThreads.awaitExchange(RankThreads.startThread(task));
    return task;
  }

  @ParameterizedTest
  @CsvSource({"TCP, 1", "TCP, 2", "TCP, 64", "FILES, 2", "FILES, 17", "TORCH, 2", "TORCH, 9"})
  void allRanksGetTheIdOfEachRound(MeetingPlace.Kind kind, int size) throws Exception {
    try (MeetingPlace place = new MeetingPlace(kind)) {
      RankThreads.exchange(size, 3, rank -> place.rank(rank, size));
      // The same job id again, with another number of ranks: what is left must not be used.
      RankThreads.exchange(size + 1, 2, rank -> place.rank(rank, size + 1));
      assertEquals(List.of(), place.leftovers());
    }
  }

  @ParameterizedTest
  @EnumSource
  void ranksMayStartBeforeRankZero(MeetingPlace.Kind kind) throws Exception {
    try (MeetingPlace place = new MeetingPlace(kind)) {
      FutureTask<UniqueId> one = exchanging(place.rank(1, 2));
      Thread.sleep(200);
      assertEquals(place.rank(0, 2).exchange(RankThreads::newId), RankThreads.join(one));
    }
  }

  @ParameterizedTest
  @EnumSource
  void rankAheadWaitsForItsRound(MeetingPlace.Kind kind) throws Exception {
    try (MeetingPlace place = new MeetingPlace(kind)) {
      RankRendezvous zero = place.rank(0, 3);
      RankRendezvous one = place.rank(1, 3);
      RankRendezvous two = place.rank(2, 3);
      FutureTask<List<UniqueId>> ahead =
          RankThreads.start(
              () -> List.of(two.exchange(RankThreads::newId), two.exchange(RankThreads::newId)));
      FutureTask<UniqueId> first = exchange(zero);
      UniqueId firstId = one.exchange(RankThreads::newId);
      assertEquals(firstId, RankThreads.join(first));
      FutureTask<UniqueId> second = exchange(zero);
      UniqueId secondId = one.exchange(RankThreads::newId);
      assertEquals(List.of(firstId, secondId), RankThreads.join(ahead));
      assertEquals(secondId, RankThreads.join(second));
      assertNotEquals(firstId, secondId);
    }
  }

  @ParameterizedTest
  @EnumSource
  void missingRanksAreNamedOnRanksThatArrived(MeetingPlace.Kind kind) throws Exception {
    try (MeetingPlace place = new MeetingPlace(kind)) {
      FutureTask<UniqueId> two = exchanging(place.rank(2, 6));
      FutureTask<UniqueId> zero = exchange(place.rank(0, 6, ENOUGH));
      String missing = "missing ranks 1, 3-5 of 6 (rank 2 announced, not confirmed) in round 1 at ";
      NcclTimeoutException timeout = RankThreads.failure(NcclTimeoutException.class, zero);
      assertTrue(timeout.getMessage().contains("missing ranks 1, 3-5 of 6"), timeout.getMessage());
      RendezvousException arrived = RankThreads.failure(RendezvousException.class, two);
      String told = " has ended the exchange: it timed out after 4.0 s; " + missing;
      assertTrue(arrived.getMessage().contains(told), arrived.getMessage());
      assertEquals(List.of(), place.leftovers());
    }
  }

  @ParameterizedTest
  @EnumSource(names = {"FILES", "TORCH"})
  void waitingRankNamesRanksThatHaveNotCome(MeetingPlace.Kind kind) throws Exception {
    try (MeetingPlace place = new MeetingPlace(kind)) {
      FutureTask<UniqueId> one = exchanging(place.rank(1, 4));
      NcclTimeoutException late =
          assertThrows(
              NcclTimeoutException.class,
              () -> place.rank(3, 4, ENOUGH).exchange(RankThreads::newId));
      assertTrue(late.getMessage().contains("rank 0 has not published round 1"), late.getMessage());
      assertTrue(late.getMessage().contains("no announcement of ranks 0, 2"), late.getMessage());
      assertFalse(one.isDone());
    }
  }

  @ParameterizedTest
  @EnumSource
  void interruptedRankIsAnsweredAfterItsRestart(MeetingPlace.Kind kind) throws Exception {
    try (MeetingPlace place = new MeetingPlace(kind)) {
      FutureTask<UniqueId> zero = exchanging(place.rank(0, 3));
      RankRendezvous killed = place.rank(1, 3);
      FutureTask<Boolean> interrupted =
          new FutureTask<>(
              () -> {
                assertThrows(RendezvousException.class, () -> killed.exchange(RankThreads::newId));
                return Thread.currentThread().isInterrupted();
              });
      Thread thread = RankThreads.startThread(interrupted);
      RankThreads.awaitExchange(thread);
      Thread.sleep(RankThreads.RANDOM.nextInt(100));
      thread.interrupt();
      assertEquals(true, RankThreads.join(interrupted));
      FutureTask<UniqueId> one = exchange(place.rank(1, 3));
      FutureTask<UniqueId> two = exchange(place.rank(2, 3));
      UniqueId id = RankThreads.join(zero);
      assertEquals(List.of(id, id), List.of(RankThreads.join(one), RankThreads.join(two)));
    }
  }

  @ParameterizedTest
  @EnumSource
  void interruptOfRankZeroIsPreserved(MeetingPlace.Kind kind) throws Exception {
    try (MeetingPlace place = new MeetingPlace(kind)) {
      RankRendezvous zero = place.rank(0, 2);
      FutureTask<Boolean> task =
          new FutureTask<>(
              () -> {
                assertThrows(RendezvousException.class, () -> zero.exchange(RankThreads::newId));
                return Thread.currentThread().isInterrupted();
              });
      Thread thread = RankThreads.startThread(task);
      Thread.sleep(RankThreads.RANDOM.nextInt(100));
      thread.interrupt();
      assertEquals(true, RankThreads.join(task));
    }
  }

  @ParameterizedTest
  @CsvSource({"TCP, 0", "TCP, 1", "FILES, 0", "FILES, 1", "TORCH, 0", "TORCH, 1"})
  void closeEndsTheWait(MeetingPlace.Kind kind, int rank) throws Exception {
    try (MeetingPlace place = new MeetingPlace(kind)) {
      RankRendezvous rendezvous = place.rank(rank, 2);
      FutureTask<UniqueId> task = exchanging(rendezvous);
      rendezvous.close();
      RendezvousException closed = RankThreads.failure(RendezvousException.class, task);
      assertTrue(closed.getMessage().contains("was closed"), closed.getMessage());
      rendezvous.close();
      assertThrows(IllegalStateException.class, () -> rendezvous.exchange(RankThreads::newId));
    }
  }

  @ParameterizedTest
  @EnumSource(names = {"FILES", "TORCH"})
  void jobIdsSeparateRunsInOnePlace(MeetingPlace.Kind kind) throws Exception {
    try (MeetingPlace place = new MeetingPlace(kind)) {
      List<FutureTask<Void>> runs = new ArrayList<>();
      for (String run : List.of("job 1", "job 2", "")) {
        runs.add(
            RankThreads.start(
                () -> {
                  RankThreads.exchange(
                      4,
                      3,
                      rank ->
                          place.rank(
                              MeetingPlace.SECRET,
                              RankInfo.of(rank, 4).withJobId(run).withTimeout(MeetingPlace.LONG)));
                  return null;
                }));
      }
      for (FutureTask<Void> run : runs) {
        RankThreads.join(run);
      }
      assertEquals(List.of(), place.leftovers());
    }
  }

  @Test
  void ranksMeetBesideAThousandIdleConnections() throws Exception {
    try (MeetingPlace place = new MeetingPlace(MeetingPlace.Kind.TCP)) {
      RankRendezvous zero = place.rank(0, 4, Duration.ofSeconds(20));
      try (IdleConnections idle = new IdleConnections(place.address(), 1000)) {
        FutureTask<UniqueId> first = exchange(zero);
        List<FutureTask<UniqueId>> others = new ArrayList<>();
        for (int rank = 1; rank < 4; rank++) {
          others.add(exchange(place.rank(rank, 4)));
        }
        UniqueId id = RankThreads.join(first);
        for (FutureTask<UniqueId> other : others) {
          assertEquals(id, RankThreads.join(other));
        }
        assertTrue(idle.open() > 900, () -> "only " + idle.open() + " are open");
      }
    }
  }

  @Test
  void rankOfAnotherRunGetsNoId() throws Exception {
    try (MeetingPlace place = new MeetingPlace(MeetingPlace.Kind.TCP)) {
      FutureTask<UniqueId> zero = exchanging(place.rank(0, 2));
      RankInfo other = RankInfo.of(1, 2).withJobId("yesterday").withTimeout(ENOUGH);
      NcclTimeoutException thrown =
          assertThrows(
              NcclTimeoutException.class,
              () -> place.rank(MeetingPlace.SECRET, other).exchange(RankThreads::newId));
      assertTrue(thrown.getMessage().contains("belongs to another run"), thrown.getMessage());
      assertEquals(place.rank(1, 2).exchange(RankThreads::newId), RankThreads.join(zero));
    }
  }

  @Test
  void longWaitIsLoggedOnce() throws Exception {
    try (MeetingPlace place = new MeetingPlace(MeetingPlace.Kind.FILES);
        LogLines log = new LogLines(RankRendezvous.class)) {
      // Half of the timeout passes before the wait is logged.
      RankRendezvous zero = place.rank(0, 2, Duration.ofSeconds(12));
      FutureTask<UniqueId> first = exchange(zero);
      while (log.lines().isEmpty() && !first.isDone()) {
        Thread.sleep(5);
      }
      place.rank(1, 2).exchange(RankThreads::newId);
      RankThreads.join(first);
      List<String> lines =
          log.lines().stream().filter(line -> line.endsWith(zero.toString())).toList();
      assertEquals(1, lines.size(), () -> log.lines().toString());
      String expected = "rank 0 of 2 is still waiting for all ranks in round 1; timeout in ";
      assertTrue(lines.getFirst().startsWith(expected), lines.getFirst());
    }
  }

  @Test
  void failedRendezvousRejectsFurtherRounds() {
    RankRendezvous alone = RankRendezvous.alone(RankInfo.of(0, 1));
    assertThrows(NullPointerException.class, () -> alone.exchange(() -> null));
    IllegalStateException failed =
        assertThrows(IllegalStateException.class, () -> alone.exchange(RankThreads::newId));
    assertTrue(failed.getMessage().contains("failed in round 1"), failed.getMessage());
  }

  @Test
  void nestedExchangeIsRejected() {
    RankRendezvous alone = RankRendezvous.alone(RankInfo.of(0, 1));
    IllegalStateException nested =
        assertThrows(
            IllegalStateException.class,
            () -> alone.exchange(() -> alone.exchange(RankThreads::newId)));
    assertTrue(nested.getMessage().contains("one at a time"), nested.getMessage());
  }

  @Test
  void makerReturningNullIsNamed() {
    RankRendezvous alone = RankRendezvous.alone(RankInfo.of(0, 1));
    NullPointerException thrown =
        assertThrows(NullPointerException.class, () -> alone.exchange(() -> null));
    assertEquals("maker returned null in round 1", thrown.getMessage());
  }

  @Test
  void rankInfoIsChecked() {
    assertEquals(
        "size is 0; it must be 1 or more",
        assertThrows(IllegalArgumentException.class, () -> RankInfo.of(0, 0)).getMessage());
    assertEquals(
        "rank is 4; it must be from 0 to 3",
        assertThrows(IllegalArgumentException.class, () -> RankInfo.of(4, 4)).getMessage());
    assertThrows(
        IllegalArgumentException.class, () -> RankInfo.of(0, 1).withTimeout(Duration.ZERO));
    assertEquals("job 7", RankInfo.of(1, 2).withJobId("job 7").jobId());
  }
}
