package io.nccl4j.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.fixtures.RankThreads;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Communicators split from a parent communicator. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class SplitContract {
  abstract BackendUnderTest underTest();

  List<Integer> rankCounts() {
    return underTest().rankCounts(1, 2, 3, 4, 7, 8);
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void ranksOfOneColorKeepTheirOrder(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            int color = rank.rank() % 2;
            try (Communicator half = rank.comm().split(color, 0)) {
              assertEquals((n + 1 - color) / 2, half.size());
              assertEquals(rank.rank() / 2, half.rank());
              assertEquals(rank.comm().device(), half.device());
              assertEquals(sumOfColor(n, color), sum(rank, half, rank.rank()));
            }
          });
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void keyOrdersNewRanks(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            try (Communicator reversed = rank.comm().split(7, -rank.rank())) {
              assertEquals(n - 1 - rank.rank(), reversed.rank());
              Buffer value = rank.ints(rank.rank());
              reversed.broadcast(value, 0, rank.stream());
              assertEquals(n - 1, rank.downloadInts(value)[0], "new rank 0 was the last");
            }
          });
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void childKnowsItsRanksInTheParent(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            int color = rank.rank() % 2;
            try (Communicator half = rank.comm().split(color, -rank.rank())) {
              List<Integer> highestFirst =
                  IntStream.range(0, n)
                      .map(i -> n - 1 - i)
                      .filter(i -> i % 2 == color)
                      .boxed()
                      .toList();
              assertEquals(highestFirst, half.parentRanks(rank.stream()));
              try (Communicator grandchild = half.split(0, 0)) {
                rank.stream().synchronize();
                assertEquals(
                    IntStream.range(0, half.size()).boxed().toList(),
                    grandchild.parentRanks(rank.stream()));
              }
            }
          });
    }
  }

  @Test
  void parentRanksNeedParentAndNeitherGroupNorCapture() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      Rank rank = ranks.rank(0);
      Throwable none =
          assertThrows(IllegalStateException.class, () -> rank.comm().parentRanks(rank.stream()));
      assertEquals(
          "neither a split nor a shrink created this communicator, so it has no parent: "
              + rank.comm(),
          none.getMessage());
      try (Communicator child = rank.comm().split(0, 0)) {
        Runnable ask = () -> child.parentRanks(rank.stream());
        Throwable group = assertThrows(IllegalStateException.class, () -> Group.run(ask));
        assertEquals(
            "parentRanks waits for the other ranks; call it outside the group", group.getMessage());
        Throwable capture =
            assertThrows(IllegalStateException.class, () -> Graph.capture(rank.stream(), ask));
        assertEquals(
            "parentRanks is not possible in Graph.capture; only operations are",
            capture.getMessage());
      }
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void rankWithoutColorGetsNoCommunicator(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            Runnable useParent = () -> assertEquals(n, sum(rank, rank.comm(), 1));
            if (rank.rank() == n - 1) {
              rank.comm().splitNoColor();
              useParent.run();
            } else {
              try (Communicator rest = rank.comm().split(0, 0)) {
                assertEquals(n - 1, rest.size());
                assertEquals(n - 1, sum(rank, rest, 1));
                // Before the close, which waits for the kernels of all ranks on the device.
                useParent.run();
              }
            }
          });
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void parentAndChildrenWorkConcurrently(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            try (Communicator first = rank.comm().split(rank.rank() % 2, 0);
                Communicator second = first.split(0, 0)) {
              assertEquals(first.size(), second.size());
              for (int i = 0; i < 3; i++) {
                assertEquals(n, sum(rank, rank.comm(), 1));
                assertEquals(first.size(), sum(rank, first, 1));
                assertEquals(second.size(), sum(rank, second, 1));
              }
            }
          });
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void oneThreadSplitsAllRanksInGroup(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      List<Communicator> created = new ArrayList<>();
      Group.run(
          () ->
              ranks.inOneThread(
                  rank -> {
                    if (rank.rank() == 0) {
                      rank.comm().splitNoColor();
                    } else {
                      created.add(rank.comm().split(rank.rank() % 2, 0));
                    }
                  }));
      for (int i = 0; i < created.size(); i++) {
        assertEquals(i / 2, created.get(i).rank());
        assertTrue(created.get(i).isOpen());
      }
      RankThreads.run(created.size(), i -> created.get(i).close());
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void childWorksAfterParentIsClosed(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            Communicator parent = rank.comm().split(0, 0);
            try (Communicator child = parent.split(0, 0)) {
              parent.close();
              assertEquals(n, sum(rank, child, 1));
            }
          });
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void splitInFailedGroupLeavesNoTrace(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            List<Communicator> children = new ArrayList<>();
            Group.run(
                () -> {
                  if (rank.rank() == 0) {
                    assertThrows(
                        ArithmeticException.class, () -> Group.run(() -> splitAndFail(rank)));
                  }
                  children.add(rank.comm().split(0, 0));
                });
            try (Communicator child = children.getFirst()) {
              assertEquals(n, sum(rank, child, 1));
            }
          });
    }
  }

  private static void splitAndFail(Rank rank) {
    Communicator dropped = rank.comm().split(1, 0);
    throw new ArithmeticException("after " + dropped);
  }

  @Test
  void childHasItsOwnConfiguration() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      CommunicatorConfig config = underTest().config().withName("child");
      try (Communicator child = ranks.rank(0).comm().split(0, 0, config)) {
        assertEquals(config, child.config());
        assertTrue(child.toString().contains("child"), child::toString);
      }
    }
  }

  @Test
  void negativeColorOrAnotherDeviceIsRefused() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      Communicator comm = ranks.rank(0).comm();
      Throwable color = assertThrows(IllegalArgumentException.class, () -> comm.split(-1, 0));
      assertEquals("color is -1; it must be 0 or more", color.getMessage());
      Throwable device =
          assertThrows(
              IllegalArgumentException.class,
              () -> comm.split(0, 0, underTest().config().withDevice(comm.device() + 1)));
      assertTrue(device.getMessage().startsWith("childConfig has device"), device::toString);
      assertThrows(NullPointerException.class, () -> comm.split(0, 0, null));
    }
  }

  private static int sum(Rank rank, Communicator comm, int mine) {
    Buffer value = rank.ints(mine);
    comm.allReduce(value, value, ReduceOp.SUM, rank.stream());
    return rank.downloadInts(value)[0];
  }

  private static int sumOfColor(int n, int color) {
    int sum = 0;
    for (int rank = color; rank < n; rank += 2) {
      sum += rank;
    }
    return sum;
  }
}
