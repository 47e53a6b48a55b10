package io.nccl4j.rendezvous;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.NcclTimeoutException;
import io.nccl4j.UniqueId;
import io.nccl4j.fixtures.LogLines;
import io.nccl4j.internal.rendezvous.RankBackend;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class InProcessRendezvousTest {
  private static final Duration SHORT = Duration.ofMillis(200);
  private static final Duration LONG = Duration.ofSeconds(30);

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 3, 17, 64})
  void allRanksGetTheIdOfEachRound(int size) throws Exception {
    List<InProcessRendezvous> rendezvous = InProcessRendezvous.of(size, LONG);
    RankThreads.exchange(size, 5, rendezvous::get);
  }

  @Test
  void longWaitIsLoggedOnce() throws Exception {
    // Half of it passes before the wait is logged; a busy machine may need the rest for rank 1.
    List<InProcessRendezvous> rendezvous = InProcessRendezvous.of(2, Duration.ofSeconds(12));
    try (LogLines log = new LogLines(AbstractRendezvous.class)) {
      FutureTask<UniqueId> first =
          RankThreads.start(() -> rendezvous.get(0).exchange(RankThreads::newId));
      while (log.lines().isEmpty() && !first.isDone()) {
        Thread.sleep(5);
      }
      rendezvous.get(1).exchange(() -> null);
      RankThreads.join(first);
      List<String> lines =
          log.lines().stream().filter(line -> line.endsWith(rendezvous.get(0).toString())).toList();
      assertEquals(1, lines.size(), () -> log.lines().toString());
      String line = lines.getFirst();
      String expected = "rank 0 of 2 is still waiting for all ranks in round 1; timeout in ";
      assertTrue(line.startsWith(expected), line);
    }
  }

  @Test
  void rankZeroNamesMissingRanks() throws Exception {
    List<InProcessRendezvous> rendezvous = InProcessRendezvous.of(6, Duration.ofSeconds(2));
    FutureTask<UniqueId> second = new FutureTask<>(() -> rendezvous.get(2).exchange(() -> null));
    RankThreads.awaitExchange(RankThreads.startThread(second), InProcessRendezvous.class);
    NcclTimeoutException timeout =
        assertThrows(
            NcclTimeoutException.class, () -> rendezvous.get(0).exchange(RankThreads::newId));
    assertTrue(timeout.getMessage().contains("missing ranks 1, 3-5 of 6"), timeout.getMessage());
    // Its own timeout, or rank 0's if that is first.
    RuntimeException other = RankThreads.failure(RuntimeException.class, second);
    assertTrue(other.getMessage().contains("missing ranks 1, 3-5 of 6"), other.getMessage());
  }

  @Test
  void inProcessDifferentBackendsFailOnEveryRank() throws Exception {
    List<InProcessRendezvous> rendezvous = InProcessRendezvous.of(3, LONG);
    RankThreads.assertBackendMismatch(
        "rank 1 uses NCCL and rank 0 the reference backend;",
        List.of(RankBackend.REFERENCE, RankBackend.NCCL, RankBackend.REFERENCE),
        rendezvous::get);
  }

  @Test
  void otherRanksReportThatRankZeroHasNotPublished() {
    InProcessRendezvous rendezvous = InProcessRendezvous.of(2, SHORT).get(1);
    NcclTimeoutException timeout =
        assertThrows(NcclTimeoutException.class, () -> rendezvous.exchange(RankThreads::newId));
    assertTrue(timeout.getMessage().contains("rank 0 has not published"), timeout.getMessage());
  }

  @Test
  void rankThatArrivesAfterAFailureGetsNoId() {
    List<InProcessRendezvous> rendezvous = InProcessRendezvous.of(2, SHORT);
    assertThrows(NcclTimeoutException.class, () -> rendezvous.get(0).exchange(RankThreads::newId));
    RendezvousException late =
        assertThrows(
            RendezvousException.class, () -> rendezvous.get(1).exchange(RankThreads::newId));
    assertTrue(late.getMessage().contains("rank 0 failed in round 1"), late.getMessage());
  }

  @Test
  void failingMakerFailsAllRanksAtOnce() throws Exception {
    List<InProcessRendezvous> rendezvous = InProcessRendezvous.of(2, LONG);
    FutureTask<UniqueId> other = RankThreads.start(() -> rendezvous.get(1).exchange(() -> null));
    IllegalStateException expected = new IllegalStateException("no network interface");
    IllegalStateException thrown =
        assertThrows(
            IllegalStateException.class,
            () ->
                rendezvous
                    .get(0)
                    .exchange(
                        () -> {
                          throw expected;
                        }));
    assertSame(expected, thrown);
    assertSame(expected, RankThreads.failure(RendezvousException.class, other).getCause());
  }

  @Test
  void interruptEndsTheWaitAndIsPreserved() throws Exception {
    InProcessRendezvous rendezvous = InProcessRendezvous.of(2, LONG).get(1);
    FutureTask<Boolean> task =
        new FutureTask<>(
            () -> {
              assertThrows(RendezvousException.class, () -> rendezvous.exchange(() -> null));
              return Thread.currentThread().isInterrupted();
            });
    RankThreads.startThread(task).interrupt();
    assertEquals(true, RankThreads.join(task));
  }

  @Test
  void rankZeroInterruptedBeforeItBeginsFailsOtherRanks() {
    List<InProcessRendezvous> rendezvous = InProcessRendezvous.of(2, LONG);
    FutureTask<UniqueId> waiting = RankThreads.start(() -> rendezvous.get(1).exchange(() -> null));
    Thread.currentThread().interrupt();
    assertThrows(
        RendezvousException.class, () -> rendezvous.getFirst().exchange(RankThreads::newId));
    assertTrue(Thread.interrupted(), "the interrupt status is preserved");
    ExecutionException failure =
        assertThrows(ExecutionException.class, () -> waiting.get(10, TimeUnit.SECONDS));
    assertInstanceOf(RendezvousException.class, failure.getCause());
  }

  @Test
  void closeEndsTheWait() throws Exception {
    InProcessRendezvous rendezvous = InProcessRendezvous.of(2, LONG).get(1);
    FutureTask<UniqueId> task = new FutureTask<>(() -> rendezvous.exchange(() -> null));
    RankThreads.awaitExchange(RankThreads.startThread(task), InProcessRendezvous.class);
    rendezvous.close();
    RendezvousException closed = RankThreads.failure(RendezvousException.class, task);
    assertTrue(closed.getMessage().contains("was closed"), closed.getMessage());
    rendezvous.close();
    assertThrows(IllegalStateException.class, () -> rendezvous.exchange(() -> null));
  }

  @Test
  void failedRendezvousRejectsFurtherRounds() {
    InProcessRendezvous rendezvous = InProcessRendezvous.of(2, SHORT).get(1);
    assertThrows(NcclTimeoutException.class, () -> rendezvous.exchange(() -> null));
    IllegalStateException failed =
        assertThrows(IllegalStateException.class, () -> rendezvous.exchange(() -> null));
    assertTrue(failed.getMessage().contains("failed in round 1"), failed.getMessage());
  }

  @Test
  void nestedExchangeIsRejected() {
    InProcessRendezvous alone = InProcessRendezvous.of(1, SHORT).getFirst();
    IllegalStateException nested =
        assertThrows(
            IllegalStateException.class,
            () -> alone.exchange(() -> alone.exchange(RankThreads::newId)));
    assertTrue(nested.getMessage().contains("one at a time"), nested.getMessage());
  }

  @Test
  void makerReturningNullIsNamed() {
    InProcessRendezvous alone = InProcessRendezvous.of(1, SHORT).getFirst();
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
