package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.CommunicatorList;
import io.nccl4j.DataType;
import io.nccl4j.NcclException;
import io.nccl4j.NcclInvalidUsageException;
import io.nccl4j.Operation;
import io.nccl4j.Recovery;
import io.nccl4j.ReduceOp;
import io.nccl4j.ShrinkMode;
import io.nccl4j.Stream;
import io.nccl4j.fixtures.RankThreads;
import io.nccl4j.internal.reference.ReferenceCommunicator;
import io.nccl4j.internal.reference.bootstrap.Bootstraps;
import io.nccl4j.spi.Contract;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

/** Survivors of a loss agree on who is lost, and never continue in two parts. */
@Timeout(120)
class RecoveryTest {
  private static final Duration TIMEOUT = Duration.ofSeconds(20);
  private static final CommunicatorConfig CONFIG =
      CommunicatorConfig.defaults().withTimeout(TIMEOUT);

  /** How the ranks of a job are distributed. */
  enum Place {
    ONE_PROCESS,
    SHARED_MEMORY,
    TCP
  }

  private static Backend open(Place place, int ranks) {
    ReferenceOptions options = ReferenceOptions.defaults();
    return switch (place) {
      case ONE_PROCESS -> ReferenceBackend.open(ranks, options);
      case SHARED_MEMORY -> ReferenceBackend.openAsProcesses(ranks, ranks, options);
      case TCP ->
          ReferenceBackend.openAsProcesses(ranks, ranks, options.withTransport(Transport.TCP));
    };
  }

  private interface RankBody {
    void run(Communicator world) throws Exception;
  }

  private interface RanksBody {
    void run(Communicator world, CommunicatorList worlds) throws Exception;
  }

  /** Runs a body on each rank of a new communicator, in a thread each, and ends it afterwards. */
  private static void run(Place place, int ranks, CommunicatorConfig config, RankBody body) {
    run(place, ranks, config, (world, worlds) -> body.run(world));
  }

  private static void run(Place place, int ranks, CommunicatorConfig config, RanksBody body) {
    int[] devices = IntStream.range(0, ranks).toArray();
    try (Backend backend = open(place, ranks)) {
      CommunicatorList worlds = backend.newCommunicators(devices, config);
      try {
        RankThreads.run(ranks, rank -> body.run(worlds.get(rank), worlds));
      } finally {
        worlds.forEach(Communicator::abort);
      }
    }
  }

  /** Returns the sum of a number of each rank. */
  private static int sum(Communicator comm, int mine) {
    try (Stream stream = comm.newStream();
        Buffer value = comm.newBuffer(DataType.INT32, 1)) {
      value.copyFromAsync(new int[] {mine}, stream);
      comm.allReduce(value, value, ReduceOp.SUM, stream);
      int[] sum = new int[1];
      value.copyTo(sum, stream);
      return sum[0];
    }
  }

  /** Returns the sum once all ranks have it, so that any of them may leave. */
  private static int sum(Communicator comm, int mine, CyclicBarrier all) throws Exception {
    int sum = sum(comm, mine);
    all.await();
    return sum;
  }

  private static int bit(Communicator world) {
    return 1 << world.rank();
  }

  /**
   * Rank 2 leaves while the others are in an operation, of the communicator or of a child in which
   * the ranks have other numbers; rank 0 continues later than rank 1.
   */
  @ParameterizedTest(name = "{0}, in a child: {1}, {2} ms late, rank 2 aborts: {3}")
  @CsvSource({
    "ONE_PROCESS, false, 0, true",
    "ONE_PROCESS, true, 300, true",
    "SHARED_MEMORY, false, 300, true",
    "SHARED_MEMORY, true, 0, true",
    "SHARED_MEMORY, true, 300, true",
    "SHARED_MEMORY, true, 300, false",
    "TCP, true, 300, true",
    "TCP, true, 0, false",
  })
  void survivorsContinueTogether(Place place, boolean inChild, long late, boolean aborts) {
    CyclicBarrier all = new CyclicBarrier(3);
    run(
        place,
        3,
        CONFIG,
        world -> {
          int rank = world.rank();
          Communicator used = inChild ? world.split(0, 2 - rank) : world;
          assertEquals(7, sum(used, bit(world), all));
          if (rank == 2) {
            end(used, aborts);
            end(world, aborts);
            return;
          }
          NcclException failure =
              assertThrows(NcclException.class, () -> sum(used, bit(world)), "rank 2 has left");
          int lost = inChild ? 0 : 2;
          assertEquals(Set.of(lost), failure.failedRanks(), failure::toString);
          assertEquals(Set.of(), failure.missingRanks(), failure::toString);
          if (rank == 0) {
            TimeUnit.MILLISECONDS.sleep(late);
          }
          if (inChild) {
            used.abort();
          }
          recoverAndSum(world, Recovery.defaults(), failure, 3);
        });
  }

  private static void end(Communicator comm, boolean aborts) {
    if (aborts) {
      comm.abort();
    } else {
      comm.close();
    }
  }

  private static void recoverAndSum(
      Communicator world, Recovery recovery, NcclException failure, int expected) {
    Communicator rest = recovery.recover(world, failure);
    assertEquals(Integer.bitCount(expected), rest.size());
    assertEquals(expected, sum(rest, bit(world)));
    rest.close();
  }

  /** Each rank hears of the rank that left first, not of those that left because of it. */
  @ParameterizedTest
  @EnumSource
  void ranksThatLeaveAfterAFailureAreNotNamed(Place place) {
    CyclicBarrier all = new CyclicBarrier(3);
    CyclicBarrier left = new CyclicBarrier(2);
    run(
        place,
        3,
        CONFIG,
        world -> {
          sum(world, 1, all);
          switch (world.rank()) {
            case 2 -> world.abort();
            case 1 -> {
              NcclException failure = assertThrows(NcclException.class, () -> sum(world, 1));
              assertEquals(Set.of(2), failure.failedRanks());
              world.abort();
              left.await();
            }
            default -> {
              left.await();
              NcclException failure = assertThrows(NcclException.class, () -> sum(world, 1));
              assertEquals(Set.of(2), failure.failedRanks(), failure::toString);
              NcclException now = world.asyncError().orElseThrow();
              assertEquals(Set.of(2), now.failedRanks(), now::toString);
              assertEquals(Optional.of(Operation.ALL_REDUCE), now.operation());
            }
          }
        });
  }

  /** Nobody is lost, so all continue, whichever rank the failure names. */
  @ParameterizedTest
  @EnumSource
  void ranksOfAMismatchContinueTogether(Place place) {
    run(
        place,
        3,
        CONFIG,
        world -> {
          Buffer value = world.newBuffer(DataType.INT32, 1 + world.rank());
          Stream stream = world.newStream();
          value.fill((byte) 0, stream);
          world.allReduce(value, value, ReduceOp.SUM, stream);
          NcclException failure = assertThrows(NcclException.class, stream::synchronize);
          recoverAndSum(world, Recovery.defaults(), failure, 7);
          value.close();
        });
  }

  /** A rank that is alive but does not call is excluded after the timeout. */
  @Test
  void rankThatDoesNotCallIsExcluded() {
    CyclicBarrier done = new CyclicBarrier(3);
    run(
        Place.TCP,
        3,
        CONFIG.withTimeout(Duration.ofSeconds(5)),
        world -> {
          if (world.rank() == 1) {
            done.await();
            NcclException late =
                assertThrows(
                    NcclException.class,
                    () -> Recovery.defaults().recover(world, new NcclException("test", 6, "", "")));
            assertTrue(late.getMessage().contains("1 of 3 ranks are left"), late::toString);
            return;
          }
          NcclException failure = assertThrows(NcclException.class, () -> sum(world, 1));
          assertEquals(Set.of(1), failure.missingRanks());
          recoverAndSum(world, Recovery.defaults(), failure, 5);
          world.close();
          done.await();
        });
  }

  /** Two of five ranks are in another wait, longer than the timeout, when the others recover. */
  @Test
  void lateRanksAreAwaitedByAMinority() {
    CyclicBarrier all = new CyclicBarrier(5);
    run(
        Place.TCP,
        5,
        CONFIG.withTimeout(Duration.ofSeconds(5)),
        world -> {
          sum(world, 1, all);
          if (world.rank() == 2) {
            world.abort();
            return;
          }
          NcclException failure = assertThrows(NcclException.class, () -> sum(world, 1));
          if (world.rank() % 4 == 0) {
            TimeUnit.SECONDS.sleep(6);
          }
          recoverAndSum(world, Recovery.defaults(), failure, 27);
        });
  }

  @Test
  void minorityContinuesOnlyIfItMay() {
    CyclicBarrier all = new CyclicBarrier(3);
    run(
        Place.SHARED_MEMORY,
        3,
        CONFIG,
        world -> {
          sum(world, 1, all);
          if (world.rank() != 1) {
            world.abort();
            return;
          }
          NcclException failure = assertThrows(NcclException.class, () -> sum(world, 1));
          NcclException refused =
              assertThrows(NcclException.class, () -> Recovery.defaults().recover(world, failure));
          assertSame(failure, refused.getCause());
          assertTrue(refused.getMessage().contains("no majority"), refused::toString);
          recoverAndSum(world, Recovery.defaults().withMinority(true), failure, 2);
        });
  }

  /** Of two equal parts only the one with rank 0 continues. */
  @ParameterizedTest
  @CsvSource({"0, 1", "1, 0"})
  void halfOfTheRanksContinuesWithRankZero(int lost, int survivor) {
    CyclicBarrier all = new CyclicBarrier(2);
    run(
        Place.SHARED_MEMORY,
        2,
        CONFIG,
        world -> {
          sum(world, 1, all);
          if (world.rank() == lost) {
            world.abort();
            return;
          }
          NcclException failure = assertThrows(NcclException.class, () -> sum(world, 1));
          if (survivor == 0) {
            recoverAndSum(world, Recovery.defaults(), failure, 1);
          } else {
            assertThrows(NcclException.class, () -> Recovery.defaults().recover(world, failure));
          }
        });
  }

  /** Which ranks each rank of four excludes; "-" for a rank that does not call. */
  @ParameterizedTest(name = "{0}: {1} {2} {3} {4}")
  @CsvSource({
    "ONE_PROCESS, 3, 2 3, 3, -",
    "SHARED_MEMORY, 3, 2 3, 3, -",
    "TCP, 3, 2 3, 3, -",
    "SHARED_MEMORY, 2 3, 3, 3, -",
    "SHARED_MEMORY, 1 2 3, 3, 3, -",
    "SHARED_MEMORY, 1 2 3, 2 3, -, -",
    "SHARED_MEMORY, 1, 0, 0, 0",
    "TCP, 1 3, 0 2, 1 3, 0 2",
    "ONE_PROCESS, 1 3, 0 2, 1 3, 0 2",
  })
  void nobodyContinuesIfSurvivorsDisagree(
      Place place, String first, String second, String third, String fourth) {
    List<String> sets = List.of(first, second, third, fourth);
    int callers = (int) sets.stream().filter(set -> !set.equals("-")).count();
    CyclicBarrier ready = new CyclicBarrier(callers);
    Map<Integer, String> thrown = Collections.synchronizedMap(new TreeMap<>());
    run(
        place,
        4,
        CONFIG,
        (world, worlds) -> {
          String set = sets.get(world.rank());
          if (set.equals("-")) {
            return;
          }
          Set<Integer> excluded = new TreeSet<>();
          Arrays.stream(set.split(" ")).map(Integer::valueOf).forEach(excluded::add);
          ready.await();
          if (set.equals("1 2 3")) {
            // It needs no other rank, and would continue alone if they were late.
            awaitShrink(worlds.get(1));
          }
          NcclInvalidUsageException refused =
              assertThrows(
                  NcclInvalidUsageException.class,
                  () -> world.shrink(excluded, ShrinkMode.ABORT_FIRST, CONFIG).close());
          thrown.put(world.rank(), refused.getMessage());
          assertEquals(Set.of(), refused.failedRanks(), "all are alive");
          assertEquals(Set.of(), refused.missingRanks(), "all may still call");
        });
    List<String> unclear = new ArrayList<>(thrown.values());
    unclear.removeIf(
        text ->
            text.matches(
                "shrink: ranks exclude different ranks: rank . excludes rank.*, rank . excludes rank.*"));
    assertEquals(List.of(), unclear);
    assertEquals(callers, thrown.size());
  }

  /** The rank that gives up first must not do so before the others have seen its set. */
  @ParameterizedTest
  @CsvSource({"SHARED_MEMORY, 1 2 3, 2 3, -, -", "ONE_PROCESS, 3, 2 3, 3, -"})
  void everyRankLearnsOfDisagreementEachTime(
      Place place, String first, String second, String third, String fourth) {
    for (int round = 0; round < 100; round++) {
      nobodyContinuesIfSurvivorsDisagree(place, first, second, third, fourth);
    }
  }

  private static void awaitShrink(Communicator world) throws InterruptedException {
    Bootstraps bootstraps =
        ((ReferenceCommunicator) Contract.get().driver(world))
            .hostedRank()
            .communicator()
            .bootstraps();
    while (bootstraps.unfinished() == 0) {
      TimeUnit.MILLISECONDS.sleep(1);
    }
  }

  /** Ranks that a shrink excludes may be ahead, in the next one. */
  @ParameterizedTest
  @EnumSource
  void shrinksThatFinishFirstMayExcludeDifferentRanks(Place place) {
    run(
        place,
        3,
        CONFIG,
        world -> {
          for (int round = 0; round < 20; round++) {
            int excluded = round % 3;
            if (world.rank() != excluded) {
              world.shrink(Set.of(excluded), ShrinkMode.FINISH_FIRST).close();
            }
          }
          assertEquals(7, sum(world, bit(world)));
        });
  }

  /** All ranks are alive; one of them is excluded in the first attempt of some. */
  @ParameterizedTest
  @EnumSource
  void survivorsThatDisagreeFirstContinueTogether(Place place) {
    CyclicBarrier all = new CyclicBarrier(4);
    run(
        place,
        5,
        CONFIG,
        world -> {
          if (world.rank() == 4) {
            world.abort();
            return;
          }
          all.await();
          NcclException failure = new NcclException("test", 6, "a failure", "");
          Recovery recovery = Recovery.defaults();
          if (world.rank() % 2 == 0) {
            // Excludes a rank that is alive, as one that has timed out may.
            assertThrows(
                NcclException.class,
                () -> world.shrink(Set.of(3, 4), ShrinkMode.ABORT_FIRST, CONFIG).close());
          }
          recoverAndSum(world, recovery, failure, 15);
        });
  }

  /** A rank that was excluded while it was alive learns that the others continue without it. */
  @ParameterizedTest
  @EnumSource
  void excludedRankThatCallsLaterIsRefused(Place place) {
    CyclicBarrier excluded = new CyclicBarrier(3);
    run(
        place,
        3,
        CONFIG.withTimeout(Duration.ofSeconds(4)),
        world -> {
          if (world.rank() == 0) {
            excluded.await();
            NcclException refused =
                assertThrows(
                    NcclInvalidUsageException.class,
                    () -> world.shrink(Set.of(1, 2), ShrinkMode.ABORT_FIRST));
            assertTrue(
                refused
                    .text()
                    .matches("rank . continues without rank 0; rank 0 excludes ranks 1, 2"),
                refused::toString);
            assertEquals(Set.of(0), refused.failedRanks());
            return;
          }
          try (Communicator rest = world.shrink(Set.of(0), ShrinkMode.ABORT_FIRST)) {
            world.close();
            assertEquals(6, sum(rest, 2 * world.rank()));
          }
          excluded.await();
        });
  }
}
