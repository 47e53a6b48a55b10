package io.nccl4j.contract;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.Group;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Sends and receives: ungrouped, grouped, to the rank itself, and several to one peer. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class PointToPointContract {
  abstract BackendUnderTest underTest();

  List<Integer> rankCounts() {
    return underTest().rankCounts(1, 2, 3, 4, 5, 8, 17);
  }

  List<Integer> rankCountsWithPeers() {
    return underTest().rankCounts(2, 3, 4);
  }

  @ParameterizedTest(name = "{0} ranks", allowZeroInvocations = true)
  @MethodSource("rankCountsWithPeers")
  void sendIsReceivedWithoutGroup(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            if (rank.rank() == 0) {
              rank.comm().send(rank.ints(3, 1, 4, 1, 5), n - 1, rank.stream());
            } else if (rank.rank() == n - 1) {
              Buffer got = rank.allocate(DataType.INT32, 5);
              rank.comm().recv(got, 0, rank.stream());
              assertArrayEquals(new int[] {3, 1, 4, 1, 5}, rank.downloadInts(got));
            }
          });
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void groupedRingShiftDeliversNeighborsData(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            int me = rank.rank();
            int left = (me + n - 1) % n;
            for (DataType type : underTest().movedTypes()) {
              List<MemorySegment> data = TestData.bytes(type, n, 1021, "shift");
              Buffer send = rank.upload(type, data.get(me));
              Buffer recv = rank.allocate(type, 1021);
              Group.run(
                  () -> {
                    rank.comm().send(send, (me + 1) % n, rank.stream());
                    rank.comm().recv(recv, left, rank.stream());
                  });
              Expected.bytes(data.get(left)).check(rank.download(recv), () -> type + " at " + rank);
            }
          });
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void groupedSendsOfDifferentSizesFormAllToAll(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            int me = rank.rank();
            List<Buffer> received = new ArrayList<>();
            Group.run(
                () -> {
                  for (int peer = 0; peer < n; peer++) {
                    Buffer recv = rank.allocate(DataType.INT32, messageSize(peer, me));
                    received.add(recv);
                    rank.comm().send(rank.ints(message(me, peer)), peer, rank.stream());
                    rank.comm().recv(recv, peer, rank.stream());
                  }
                });
            for (int peer = 0; peer < n; peer++) {
              assertArrayEquals(
                  message(peer, me),
                  rank.downloadInts(received.get(peer)),
                  "from " + peer + " to " + me);
            }
          });
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void rankSendsToItselfInGroup(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            Buffer recv = rank.allocate(DataType.INT32, 2);
            Buffer send = rank.ints(rank.rank(), 42);
            Group.run(
                () -> {
                  rank.comm().send(send, rank.rank(), rank.stream());
                  rank.comm().recv(recv, rank.rank(), rank.stream());
                });
            assertArrayEquals(new int[] {rank.rank(), 42}, rank.downloadInts(recv));
          });
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void messagesToOnePeerArriveInOrder(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            Communicator comm = rank.comm();
            int right = (rank.rank() + 1) % n;
            int left = (rank.rank() + n - 1) % n;
            Buffer recv = rank.allocate(DataType.INT32, 3);
            List<Buffer> sent = List.of(rank.ints(10), rank.ints(20), rank.ints(30));
            Group.run(
                () -> {
                  for (int i = 0; i < 3; i++) {
                    comm.send(sent.get(i), right, rank.stream());
                  }
                  for (int i = 0; i < 3; i++) {
                    comm.recv(recv.slice(i, 1), left, rank.stream());
                  }
                });
            assertArrayEquals(new int[] {10, 20, 30}, rank.downloadInts(recv));
          });
    }
  }

  @ParameterizedTest(name = "{0} ranks", allowZeroInvocations = true)
  @MethodSource("rankCountsWithPeers")
  void emptyMessagesAreMatched(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            int right = (rank.rank() + 1) % n;
            int left = (rank.rank() + n - 1) % n;
            Buffer nothing = rank.allocate(DataType.INT32, 0);
            Buffer recv = rank.allocate(DataType.INT32, 1);
            Buffer send = rank.ints(7);
            Group.run(
                () -> {
                  rank.comm().send(nothing, right, rank.stream());
                  rank.comm().recv(nothing, left, rank.stream());
                  rank.comm().send(send, right, rank.stream());
                  rank.comm().recv(recv, left, rank.stream());
                });
            assertEquals(7, rank.downloadInts(recv)[0]);
          });
    }
  }

  @ParameterizedTest(name = "{0} ranks", allowZeroInvocations = true)
  @MethodSource("rankCountsWithPeers")
  void largeBidirectionalMessagesDoNotDeadlock(int n) {
    int count = 700_001;
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            int right = (rank.rank() + 1) % n;
            int left = (rank.rank() + n - 1) % n;
            int[] mine = new int[count];
            Arrays.setAll(mine, i -> i * 31 + rank.rank());
            Buffer send = rank.ints(mine);
            Buffer fromLeft = rank.allocate(DataType.INT32, count);
            Buffer fromRight = rank.allocate(DataType.INT32, count);
            Group.run(
                () -> {
                  rank.comm().send(send, right, rank.stream());
                  rank.comm().send(send, left, rank.stream());
                  // If left and right are the same peer, its first message is to its right.
                  rank.comm().recv(fromLeft, left, rank.stream());
                  rank.comm().recv(fromRight, right, rank.stream());
                });
            int[] got = rank.downloadInts(fromLeft);
            assertEquals((count - 1) * 31 + left, got[count - 1]);
            assertEquals(left, got[0]);
            assertEquals((count - 1) * 31 + right, rank.downloadInts(fromRight)[count - 1]);
          });
    }
  }

  private static int messageSize(int from, int to) {
    return (from * 7 + to * 13) % 29;
  }

  private static int[] message(int from, int to) {
    int[] message = new int[messageSize(from, to)];
    Arrays.setAll(message, i -> from * 10_000 + to * 100 + i);
    return message;
  }
}
