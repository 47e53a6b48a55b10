package io.nccl4j.rendezvous;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.UniqueId;
import io.nccl4j.internal.rendezvous.RankBackend;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.BrokenBarrierException;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class GatherTest {
  /** An all-gather of texts among threads. */
  private static final class Framework {
    private final String[] texts;
    private final CyclicBarrier barrier;

    private Framework(int size) {
      texts = new String[size];
      barrier = new CyclicBarrier(size);
    }

    private RankRendezvous rendezvous(int rank) {
      return RankRendezvous.allGather(RankInfo.of(rank, texts.length), text -> gather(rank, text));
    }

    private List<String> gather(int rank, String text) {
      try {
        texts[rank] = text;
        barrier.await(60, TimeUnit.SECONDS);
        List<String> all = List.of(texts);
        barrier.await(60, TimeUnit.SECONDS);
        return all;
      } catch (InterruptedException | BrokenBarrierException | TimeoutException e) {
        throw new AssertionError(e);
      }
    }
  }

  /** Returns the error message of rank 1 of 2 when the framework's all-gather returns the texts. */
  private static String messageFor(String... texts) {
    Rendezvous rendezvous = Rendezvous.allGather(RankInfo.of(1, 2), own -> Arrays.asList(texts));
    return assertThrows(RendezvousException.class, () -> rendezvous.exchange(() -> null))
        .getMessage();
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 3, 17})
  void allRanksGetTheIdOfEachRound(int size) throws Exception {
    Framework framework = new Framework(size);
    RankThreads.exchange(size, 5, framework::rendezvous);
  }

  @Test
  void gatheredTextIsPrintableAscii() throws Exception {
    List<String> sent = Collections.synchronizedList(new ArrayList<>());
    Framework framework = new Framework(2);
    Function<Integer, Rendezvous> rendezvous =
        rank ->
            Rendezvous.allGather(
                RankInfo.of(rank, 2),
                text -> {
                  sent.add(text);
                  return framework.gather(rank, text);
                });
    FutureTask<UniqueId> other = RankThreads.start(() -> rendezvous.apply(1).exchange(() -> null));
    assertThrows(
        IllegalStateException.class,
        () ->
            rendezvous
                .apply(0)
                .exchange(
                    () -> {
                      throw new IllegalStateException("no\nnetwork \u00fcber all");
                    }));
    RankThreads.failure(RendezvousException.class, other);
    Collections.sort(sent);
    assertEquals(
        List.of(
            "nccl4j rank 0 of 2 round 1 failed 0 java.lang.IllegalStateException: no network  ber all",
            "nccl4j rank 1 of 2 round 1 waits 0"),
        sent);
  }

  @Test
  void failingMakerFailsAllRanks() throws Exception {
    Framework framework = new Framework(2);
    FutureTask<UniqueId> other =
        RankThreads.start(() -> framework.rendezvous(1).exchange(() -> null));
    IllegalStateException expected = new IllegalStateException("no network interface");
    IllegalStateException thrown =
        assertThrows(
            IllegalStateException.class,
            () ->
                framework
                    .rendezvous(0)
                    .exchange(
                        () -> {
                          throw expected;
                        }));
    assertSame(expected, thrown);
    assertEquals(
        "rank 0 failed in round 1: java.lang.IllegalStateException: no network interface",
        RankThreads.failure(RendezvousException.class, other).getMessage());
  }

  @Test
  void gatherDifferentBackendsFailOnEveryRank() throws Exception {
    Framework framework = new Framework(3);
    List<FutureTask<UniqueId>> ranks = new ArrayList<>();
    for (int rank = 0; rank < 3; rank++) {
      RankRendezvous rendezvous = framework.rendezvous(rank);
      RankBackend backend = rank == 2 ? RankBackend.NCCL : RankBackend.REFERENCE;
      ranks.add(RankThreads.start(() -> rendezvous.exchange(backend, RankThreads::newId)));
    }
    for (FutureTask<UniqueId> rank : ranks) {
      String thrown = RankThreads.failure(RendezvousException.class, rank).getMessage();
      assertTrue(thrown.startsWith("rank 2 uses NCCL and rank 0 the reference backend;"), thrown);
    }
  }

  @Test
  void rankThatFailedBeforeFailsAllRanks() throws Exception {
    Framework framework = new Framework(2);
    RankRendezvous zero = framework.rendezvous(0);
    RankRendezvous one = framework.rendezvous(1);
    FutureTask<UniqueId> waiting = RankThreads.start(() -> zero.exchange(RankThreads::newId));
    FutureTask<UniqueId> failing =
        RankThreads.start(
            () ->
                one.exchange(
                    RankBackend.NCCL,
                    () -> {
                      throw new IllegalStateException("no device");
                    }));
    assertEquals(
        "no device", RankThreads.failure(IllegalStateException.class, failing).getMessage());
    assertEquals(
        "rank 1 failed in round 1: java.lang.IllegalStateException: no device",
        RankThreads.failure(RendezvousException.class, waiting).getMessage());
  }

  @Test
  void frameworkExceptionIsPropagatedUnchanged() {
    IllegalArgumentException killed = new IllegalArgumentException("task was killed");
    Rendezvous rendezvous =
        Rendezvous.allGather(
            RankInfo.of(1, 2),
            text -> {
              throw killed;
            });
    assertSame(
        killed,
        assertThrows(IllegalArgumentException.class, () -> rendezvous.exchange(() -> null)));
    IllegalStateException failed =
        assertThrows(IllegalStateException.class, () -> rendezvous.exchange(() -> null));
    assertTrue(failed.getMessage().contains("failed in round 1"), failed.getMessage());
  }

  @Test
  void textsOfOtherRoundsOrRanksAreRejected() {
    String id = "nccl4j rank 0 of 2 round 1 id 0 " + RankThreads.newId().toHex();
    String waits = "nccl4j rank 1 of 2 round 1 waits 0";
    assertEquals("gather returned 1 texts; there are 2 ranks", messageFor(id));
    String swapped = messageFor(waits, id);
    assertTrue(
        swapped.startsWith(
            "gather returned at index 0 the text of rank 1 of 2 in round 1; expected that of rank 0"
                + " of 2 in round 1"),
        swapped);
    String later = messageFor(id, waits.replace("round 1", "round 2"));
    assertTrue(later.contains("text of rank 1 of 2 in round 2; expected"), later);
    assertEquals(
        "gather returned at index 0 a text that is not a rendezvous message; expected that of"
            + " rank 0 of 2 in round 1",
        messageFor("password 1234", waits));
    assertEquals(
        "gather returned at index 1 a text that is not a rendezvous message; expected that of"
            + " rank 1 of 2 in round 1",
        messageFor(id, null));
    assertEquals(
        "rank 0 of 2 in round 1 sent 'waits'; only rank 0 sends the id",
        messageFor("nccl4j rank 0 of 2 round 1 waits 0", waits));
    assertEquals(
        "rank 0 sent an invalid unique id in round 1",
        messageFor(id.replace(" id 0 ", " id 0 0"), waits));
  }

  @Test
  void errorMessagesContainNoId() {
    String hex = RankThreads.newId().toHex();
    String message = messageFor("nccl4j rank 0 of 2 round 2 id 0 " + hex, "");
    assertFalse(message.contains(hex.substring(0, 8)), message);
  }

  @Test
  void singleRankDoesNotGather() {
    Rendezvous alone =
        Rendezvous.allGather(
            RankInfo.of(0, 1),
            text -> {
              throw new AssertionError("called");
            });
    UniqueId id = RankThreads.newId();
    assertSame(id, alone.exchange(() -> id));
    alone.close();
    assertThrows(IllegalStateException.class, () -> alone.exchange(() -> id));
  }
}
