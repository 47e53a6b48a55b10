package io.nccl4j.contract;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorList;
import io.nccl4j.DataType;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.fixtures.RankThreads;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.BiConsumer;
import java.util.function.IntConsumer;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Groups: nested, failed, driving all ranks from one thread, and creating communicators. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class GroupsContract {
  abstract BackendUnderTest underTest();

  List<Integer> rankCounts() {
    return underTest().rankCounts(1, 2, 3, 5, 8);
  }

  private int fewRanks() {
    return Math.min(2, underTest().maxRanks());
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void oneThreadDrivesAllRanksInGroup(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      List<Buffer> sums = new ArrayList<>();
      List<Buffer> maxima = new ArrayList<>();
      ranks.inOneThread(rank -> sums.add(rank.ints(rank.rank(), 1)));
      ranks.inOneThread(rank -> maxima.add(rank.ints(rank.rank(), 1)));
      for (int i = 0; i < 3; i++) {
        Group.run(
            () ->
                ranks.inOneThread(
                    rank -> {
                      Buffer most = maxima.get(rank.rank());
                      Buffer sum = sums.get(rank.rank());
                      rank.comm().allReduce(most, most, ReduceOp.MAX, rank.stream());
                      rank.comm().allReduce(sum, sum, ReduceOp.SUM, rank.stream());
                    }));
      }
      ranks.inOneThread(
          rank -> {
            assertArrayEquals(
                new int[] {n - 1, 1}, rank.downloadInts(maxima.get(rank.rank())), "maxima");
            assertArrayEquals(
                new int[] {n * (n - 1) / 2 * n * n, n * n * n},
                rank.downloadInts(sums.get(rank.rank())),
                "sums");
          });
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void oneThreadConnectsAllRanksInGroup(int n) {
    ProcessRank.assumeNone(n);
    try (Backend backend = underTest().open(n)) {
      UniqueId id = backend.newUniqueId();
      List<Communicator> created = new ArrayList<>();
      Group.run(
          () -> {
            for (int rank = 0; rank < n; rank++) {
              created.add(backend.newCommunicator(id, n, rank, underTest().config()));
            }
          });
      for (int rank = 0; rank < n; rank++) {
        assertEquals(rank, created.get(rank).rank());
        assertEquals(n, created.get(rank).size());
        assertTrue(created.get(rank).isOpen());
      }
      RankThreads.run(n, rank -> created.get(rank).close());
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void newCommunicatorsReturnsAllRanksOfThisProcess(int n) {
    ProcessRank.assumeNone(n);
    try (Backend backend = underTest().open(n)) {
      int[] devices = new int[n];
      for (int rank = 0; rank < n; rank++) {
        devices[rank] = rank % backend.devices().size();
      }
      List<Communicator> created = backend.newCommunicators(devices, underTest().config());
      assertEquals(n, created.size());
      for (int rank = 0; rank < n; rank++) {
        assertEquals(rank, created.get(rank).rank());
        assertEquals(devices[rank], created.get(rank).device());
      }
      RankThreads.run(n, rank -> created.get(rank).close());
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void communicatorListClosesAllRanks(int n) {
    ProcessRank.assumeNone(n);
    try (Backend backend = underTest().open(n)) {
      int[] devices = IntStream.range(0, n).map(rank -> rank % backend.devices().size()).toArray();
      CommunicatorList comms = backend.newCommunicators(devices, underTest().config());
      try (comms) {
        assertEquals(n, comms.size());
        assertThrows(UnsupportedOperationException.class, () -> comms.remove(0));
      }
      assertTrue(comms.stream().noneMatch(Communicator::isOpen));
      comms.close();
    }
  }

  @Test
  void nestedGroupsLaunchWhenOutermostEnds() {
    int n = fewRanks();
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      List<Buffer> values = new ArrayList<>();
      ranks.inOneThread(rank -> values.add(rank.ints(1)));
      Group.run(
          () ->
              ranks.inOneThread(
                  rank ->
                      // If an inner group launched at once, its rank would wait indefinitely for
                      // the next rank.
                      Group.run(
                          () -> {
                            Buffer mine = values.get(rank.rank());
                            rank.comm().allReduce(mine, mine, ReduceOp.SUM, rank.stream());
                          })));
      ranks.inOneThread(rank -> assertEquals(n, rank.downloadInts(values.get(rank.rank()))[0]));
    }
  }

  @Test
  void exceptionInGroupLaunchesNothingAndIsRethrown() {
    int n = fewRanks();
    IllegalArgumentException cause = new IllegalArgumentException("from the lambda");
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            Buffer value = rank.ints(5);
            IllegalArgumentException thrown =
                assertThrows(
                    IllegalArgumentException.class,
                    () ->
                        Group.run(
                            () -> {
                              rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream());
                              throw cause;
                            }));
            assertSame(cause, thrown);
            assertArrayEquals(new int[] {5}, rank.downloadInts(value));
            rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream());
            assertArrayEquals(new int[] {5 * n}, rank.downloadInts(value));
          });
    }
  }

  @Test
  void invalidArgumentInGroupLaunchesNothing() {
    int n = fewRanks();
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            Buffer value = rank.ints(5);
            assertThrows(
                IllegalArgumentException.class,
                () ->
                    Group.run(
                        () -> {
                          rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream());
                          rank.comm().broadcast(value, n, rank.stream());
                        }));
            assertArrayEquals(new int[] {5}, rank.downloadInts(value));
            rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream());
            assertArrayEquals(new int[] {5 * n}, rank.downloadInts(value));
          });
    }
  }

  @Test
  void failedInnerGroupIsDroppedAndOuterContinues() {
    int n = fewRanks();
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            Buffer kept = rank.ints(1);
            Buffer dropped = rank.ints(1);
            Group.run(
                () -> {
                  rank.comm().allReduce(kept, kept, ReduceOp.SUM, rank.stream());
                  assertThrows(
                      IllegalStateException.class,
                      () ->
                          Group.run(
                              () -> {
                                rank.comm()
                                    .allReduce(dropped, dropped, ReduceOp.SUM, rank.stream());
                                throw new IllegalStateException("inner");
                              }));
                });
            assertEquals(n, rank.downloadInts(kept)[0]);
            assertEquals(1, rank.downloadInts(dropped)[0]);
          });
    }
  }

  /** An argument may be closed between a call and the end of its group. */
  @Test
  void argumentClosedWithinGroupIsRefused() {
    try (Ranks ranks = Ranks.of(underTest(), fewRanks())) {
      ranks.each(
          rank -> {
            Buffer one = rank.ints(1);
            Buffer sum = rank.ints(7);
            Buffer root = rank.comm().newBuffer(DataType.INT32, 1);
            ReduceOp.PreMulSum twice = rank.comm().newPreMulSum(DataType.INT32, 2);
            Runnable scaled = () -> rank.comm().allReduce(one, sum, twice, rank.stream());
            refusedAfter(scaled, twice::close, "op is closed: " + twice);
            Runnable calls =
                () -> {
                  rank.comm().allReduce(one, sum, ReduceOp.SUM, rank.stream());
                  rank.comm().broadcast(root, 0, rank.stream());
                };
            refusedAfter(calls, root::close, "send is closed: " + root);
            assertEquals(7, rank.downloadInts(sum)[0], "nothing was launched");
          });
    }
  }

  private static void refusedAfter(Runnable calls, Runnable close, String message) {
    Executable group =
        () ->
            Group.run(
                () -> {
                  calls.run();
                  close.run();
                });
    assertEquals(message, assertThrows(IllegalStateException.class, group).getMessage());
  }

  @Test
  void groupLaunchesNothingBeforeItsEnd() {
    int n = fewRanks();
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            Buffer value = rank.ints(3);
            rank.stream().synchronize();
            try (Stream reader = rank.comm().newStream()) {
              Group.run(
                  () -> {
                    rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream());
                    int[] untouched = new int[1];
                    value.copyTo(MemorySegment.ofArray(untouched), reader);
                    assertArrayEquals(new int[] {3}, untouched);
                  });
            }
            assertArrayEquals(new int[] {3 * n}, rank.downloadInts(value));
          });
    }
  }

  @Test
  void waitOrDownloadWithinGroupIsRefused() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      ranks.each(
          rank -> {
            Buffer value = rank.ints(5);
            Buffer other = rank.ints(7);
            Stream stream = rank.stream();
            Group.run(
                () -> {
                  other.fill((byte) 0, stream);
                  rank.comm().allReduce(value, value, ReduceOp.SUM, stream);
                  refusedInGroup("synchronize", stream::synchronize);
                  refusedInGroup("completion", stream::completion);
                  refusedInGroup("isComplete", stream::isComplete);
                  refusedInGroup("copyTo", () -> rank.downloadInts(value));
                  value.fill((byte) 1, stream);
                });
            assertArrayEquals(new int[] {0x01010101}, rank.downloadInts(value));
            assertArrayEquals(new int[] {0}, rank.downloadInts(other));
          });
    }
  }

  private static void refusedInGroup(String call, Executable use) {
    IllegalStateException thrown = assertThrows(IllegalStateException.class, use);
    assertTrue(
        thrown.getMessage().startsWith(call + " would run before the group's operations"),
        thrown::toString);
  }

  @Test
  void emptyGroupDoesNothing() {
    Group.run(() -> {});
    Group.run(() -> Group.run(() -> {}));
  }

  @Test
  void groupMayUseSeveralStreams() {
    int n = fewRanks();
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            Buffer a = rank.ints(1);
            Buffer b = rank.ints(2);
            rank.stream().synchronize();
            try (var second = rank.comm().newStream()) {
              Group.run(
                  () -> {
                    rank.comm().allReduce(a, a, ReduceOp.SUM, rank.stream());
                    rank.comm().allReduce(b, b, ReduceOp.SUM, second);
                  });
              second.synchronize();
              assertEquals(n, rank.downloadInts(a)[0]);
              assertEquals(2 * n, rank.downloadInts(b)[0]);
            }
          });
    }
  }

  @Test
  void groupRefusesToMixOperationsWithNewCommunicators() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      Rank rank = ranks.rank(0);
      Buffer value = rank.ints(1);
      UniqueId id = ranks.backend().newUniqueId();
      IllegalStateException thrown =
          assertThrows(
              IllegalStateException.class,
              () ->
                  Group.run(
                      () -> {
                        rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream());
                        newSingleRank(ranks, id);
                      }));
      assertTrue(
          thrown.getMessage().contains("either operations or the creation of communicators"),
          thrown::toString);
      assertThrows(
          IllegalStateException.class,
          () ->
              Group.run(
                  () -> {
                    newSingleRank(ranks, id);
                    rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream());
                  }));
    }
  }

  @Test
  void communicatorIsNotUsableBeforeItsGroupEnds() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      List<Communicator> created = new ArrayList<>();
      Group.run(
          () -> {
            Communicator unconnected = newSingleRank(ranks, ranks.backend().newUniqueId());
            created.add(unconnected);
            assertFalse(unconnected.isOpen());
            IllegalStateException thrown =
                assertThrows(
                    IllegalStateException.class,
                    () -> unconnected.newPreMulSum(DataType.FLOAT32, 1));
            assertTrue(thrown.getMessage().contains("not connected"), thrown::toString);
          });
      assertTrue(created.get(0).isOpen());
      created.get(0).close();
    }
  }

  @Test
  void communicatorsOfFailedGroupAreAborted() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      List<Communicator> created = new ArrayList<>();
      assertThrows(
          UnsupportedOperationException.class,
          () ->
              Group.run(
                  () -> {
                    created.add(newSingleRank(ranks, ranks.backend().newUniqueId()));
                    throw new UnsupportedOperationException("on purpose");
                  }));
      assertTrue(created.get(0).isAborted());
      created.get(0).close();
    }
  }

  @Test
  void newCommunicatorsInGroupIsRefused() {
    try (Backend backend = underTest().open(1)) {
      assertThrows(
          IllegalStateException.class,
          () -> Group.run(() -> backend.newCommunicators(new int[] {0}, underTest().config())));
    }
  }

  @Test
  void oneThreadDrivingTwoRanksWithoutGroupIsRefused() {
    onTwoRanks(
        (ranks, streams) -> {
          List<Buffer> values =
              ranks.stream().map(comm -> comm.newBuffer(DataType.INT32, 1)).toList();
          IntConsumer reduce =
              rank ->
                  ranks
                      .get(rank)
                      .allReduce(
                          values.get(rank), values.get(rank), ReduceOp.SUM, streams.get(rank));
          Group.run(() -> IntStream.range(0, 2).forEach(reduce));
          reduce.accept(0);
          String message =
              assertThrows(IllegalStateException.class, () -> reduce.accept(1)).getMessage();
          assertEquals(
              "this thread has called collective 2 of %s outside a group and now calls it for %s (allReduce); "
                      .formatted(ranks.get(0), ranks.get(1))
                  + "the first call may wait for the second, so call both in one Group.run, or each in its own thread",
              message);
          assertThrows(IllegalStateException.class, () -> reduce.accept(1), "again");
          inAnotherThread(() -> reduce.accept(1));
          inAnotherThread(
              () ->
                  assertThrows(
                      IllegalStateException.class,
                      () -> {
                        reduce.accept(1);
                        reduce.accept(0);
                      }));
          reduce.accept(0);
          reduce.accept(0);
          reduce.accept(0);
          String later =
              assertThrows(IllegalStateException.class, () -> reduce.accept(1)).getMessage();
          assertTrue(later.contains("collective 4 of " + ranks.get(0)), later);
          inAnotherThread(() -> reduce.accept(1));
          inAnotherThread(() -> reduce.accept(1));
          streams.forEach(Stream::synchronize);
          values.forEach(Buffer::close);
        });
  }

  @Test
  void threadsAlternatingBetweenRanksNeedNoGroup() {
    onTwoRanks(
        (ranks, streams) -> {
          List<Buffer> values =
              ranks.stream().map(comm -> comm.newBuffer(DataType.INT32, 1)).toList();
          for (int rank = 0; rank < 2; rank++) {
            values.get(rank).copyFromAsync(MemorySegment.ofArray(new int[] {1}), streams.get(rank));
          }
          IntConsumer reduce =
              rank ->
                  ranks
                      .get(rank)
                      .allReduce(
                          values.get(rank), values.get(rank), ReduceOp.SUM, streams.get(rank));
          // NCCL connects in the first collective, where each rank waits for the others.
          Group.run(() -> IntStream.range(0, 2).forEach(reduce));
          for (int round = 0; round < 6; round++) {
            int mine = round / 2 % 2;
            reduce.accept(mine);
            inAnotherThread(() -> reduce.accept(1 - mine));
          }
          // Two collectives ahead of the other rank; this thread calls neither of them on both.
          reduce.accept(0);
          reduce.accept(0);
          inAnotherThread(() -> reduce.accept(1));
          inAnotherThread(() -> reduce.accept(1));
          for (int rank = 0; rank < 2; rank++) {
            int[] sum = new int[1];
            values.get(rank).copyTo(MemorySegment.ofArray(sum), streams.get(rank));
            assertArrayEquals(new int[] {512}, sum);
          }
          values.forEach(Buffer::close);
        });
  }

  @Test
  void ranksOfDifferentCommunicatorsNeedNoGroup() {
    onTwoRanks(
        (ranks, streams) -> {
          List<Communicator> singles = new ArrayList<>();
          Group.run(() -> ranks.forEach(rank -> singles.add(rank.split(rank.rank(), 0))));
          for (int rank = 0; rank < 2; rank++) {
            Buffer value = singles.get(rank).newBuffer(DataType.INT32, 1);
            value.fill((byte) 1, streams.get(rank));
            singles.get(rank).allReduce(value, value, ReduceOp.SUM, streams.get(rank));
            int[] sum = new int[1];
            value.copyTo(MemorySegment.ofArray(sum), streams.get(rank));
            assertArrayEquals(new int[] {0x01010101}, sum);
            value.close();
          }
          singles.forEach(Communicator::close);
        });
  }

  private void onTwoRanks(BiConsumer<List<Communicator>, List<Stream>> body) {
    ProcessRank.assumeNone(2);
    assumeTrue(underTest().maxRanks() > 1, "needs two ranks");
    try (Backend backend = underTest().open(2)) {
      List<Communicator> ranks =
          backend.newCommunicators(
              new int[] {0, 1 % backend.devices().size()}, underTest().config());
      List<Stream> streams = ranks.stream().map(Communicator::newStream).toList();
      try {
        body.accept(ranks, streams);
      } finally {
        ranks.forEach(Communicator::abort);
      }
      streams.forEach(Stream::close);
    }
  }

  private static void inAnotherThread(Runnable body) {
    CompletableFuture.runAsync(body, task -> Thread.ofPlatform().daemon().start(task))
        .orTimeout(60, TimeUnit.SECONDS)
        .join();
  }

  private Communicator newSingleRank(Ranks ranks, UniqueId id) {
    return ranks.backend().newCommunicator(id, 1, 0, underTest().config());
  }
}
