package io.nccl4j.contract;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Which operations of one group may share memory. The operations have no order, so none may write
 * memory that another reads or writes. Only memory that an operation uses on this rank counts.
 */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class GroupMemoryContract {
  abstract BackendUnderTest underTest();

  private int fewRanks() {
    return Math.min(2, underTest().maxRanks());
  }

  /** The communicator, stream and buffers of rank 0, which is the root of every operation. */
  private static final class Root {
    final Communicator comm;
    final Stream stream;
    final int n;
    // Shared with another operation: two elements, and two for each rank.
    final Buffer part;
    final Buffer whole;
    // Used by one operation only.
    final Buffer ownPart;
    final Buffer ownWhole;

    Root(Rank rank) {
      comm = rank.comm();
      stream = rank.stream();
      n = comm.size();
      whole = rank.ints(new int[2 * n]);
      part = whole.slice(0, 2);
      ownWhole = rank.ints(new int[2 * n]);
      ownPart = ownWhole.slice(0, 2);
    }
  }

  private interface Use {
    void enqueue(Root root);
  }

  private static Map<String, Use> writers() {
    Map<String, Use> writers = new LinkedHashMap<>();
    writers.put("allReduce", r -> r.comm.allReduce(r.ownWhole, r.whole, ReduceOp.SUM, r.stream));
    writers.put("broadcast", r -> r.comm.broadcast(r.ownWhole, r.whole, 0, r.stream));
    writers.put("reduce", r -> r.comm.reduce(r.ownWhole, r.whole, ReduceOp.MAX, 0, r.stream));
    writers.put("allGather", r -> r.comm.allGather(r.ownPart, r.whole, r.stream));
    writers.put(
        "reduceScatter", r -> r.comm.reduceScatter(r.ownWhole, r.part, ReduceOp.SUM, r.stream));
    writers.put("allToAll", r -> r.comm.allToAll(r.ownWhole, r.whole, r.stream));
    writers.put("gather", r -> r.comm.gather(r.ownPart, r.whole, 0, r.stream));
    writers.put("scatter", r -> r.comm.scatter(r.ownWhole, r.part, 0, r.stream));
    writers.put("recv", r -> r.comm.recv(r.whole, 0, r.stream));
    return writers;
  }

  private static Map<String, Use> readers() {
    Map<String, Use> readers = new LinkedHashMap<>();
    readers.put("allReduce", r -> r.comm.allReduce(r.whole, r.ownWhole, ReduceOp.SUM, r.stream));
    readers.put("broadcast", r -> r.comm.broadcast(r.whole, r.ownWhole, 0, r.stream));
    readers.put("reduce", r -> r.comm.reduce(r.whole, r.ownWhole, ReduceOp.MAX, 0, r.stream));
    readers.put("allGather", r -> r.comm.allGather(r.part, r.ownWhole, r.stream));
    readers.put(
        "reduceScatter", r -> r.comm.reduceScatter(r.whole, r.ownPart, ReduceOp.SUM, r.stream));
    readers.put("allToAll", r -> r.comm.allToAll(r.whole, r.ownWhole, r.stream));
    readers.put("gather", r -> r.comm.gather(r.part, r.ownWhole, 0, r.stream));
    readers.put("scatter", r -> r.comm.scatter(r.whole, r.ownPart, 0, r.stream));
    readers.put("send", r -> r.comm.send(r.whole, 0, r.stream));
    return readers;
  }

  static List<String> writerNames() {
    return List.copyOf(writers().keySet());
  }

  static List<String> readerNames() {
    return List.copyOf(readers().keySet());
  }

  @ParameterizedTest
  @MethodSource("writerNames")
  void writeAndReadIsRefused(String name) {
    Use writer = writers().get(name);
    Use reader = r -> r.comm.send(r.whole.slice(1, 1), 0, r.stream);
    assertRefused(name + " of ", writer, "send of ", reader);
  }

  @ParameterizedTest
  @MethodSource("writerNames")
  void writeAndWriteIsRefused(String name) {
    Use writer = writers().get(name);
    Use another = r -> r.comm.recv(r.whole.slice(1, 1), 0, r.stream);
    assertRefused(name + " of ", writer, "recv of ", another);
  }

  @ParameterizedTest
  @MethodSource("readerNames")
  void readAndWriteIsRefused(String name) {
    Use reader = readers().get(name);
    Use writer = r -> r.comm.recv(r.whole.slice(1, 1), 0, r.stream);
    assertRefused(name + " of ", reader, "recv of ", writer);
  }

  @Test
  void writeToOperatorScalarIsRefused() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      Rank rank = ranks.rank(0);
      Buffer values = rank.ints(1, 2, 3);
      try (ReduceOp.PreMulSum op = rank.comm().newPreMulSum(values.slice(2, 1))) {
        Buffer data = rank.ints(5);
        Stream stream = rank.stream();
        String message =
            refusal(
                () -> {
                  rank.comm().allReduce(data, data, op, stream);
                  rank.comm().broadcast(data.slice(0, 0), values.slice(0, 0), 0, stream);
                  rank.comm().recv(values, 0, stream);
                });
        assertTrue(message.contains("reads op's scalar, " + values.slice(2, 1)), message);
        assertTrue(message.contains("writes recv, " + values), message);
      }
    }
  }

  /** Checks that rank 0 may not group both operations, in either order; other ranks do nothing. */
  private void assertRefused(String one, Use first, String another, Use second) {
    try (Ranks ranks = Ranks.of(underTest(), fewRanks())) {
      ranks.each(
          rank -> {
            if (rank.rank() == 0) {
              Root root = new Root(rank);
              assertNames(refusal(root, first, second), one + rank.comm(), another + rank.comm());
              assertNames(refusal(root, second, first), one + rank.comm(), another + rank.comm());
              assertArrayEquals(new int[2 * root.n], rank.downloadInts(root.whole));
            }
            Buffer value = rank.ints(1);
            rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream());
            assertArrayEquals(new int[] {rank.size()}, rank.downloadInts(value), "still works");
          });
    }
  }

  private static String refusal(Root root, Use first, Use second) {
    return refusal(
        () -> {
          first.enqueue(root);
          second.enqueue(root);
        });
  }

  private static String refusal(Runnable group) {
    return assertThrows(IllegalArgumentException.class, () -> Group.run(group)).getMessage();
  }

  private static void assertNames(String message, String... names) {
    for (String name : names) {
      assertTrue(message.contains(name), () -> name + " is not in: " + message);
    }
  }

  @Test
  void refusalNamesOperationsBuffersAndBytes() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      Rank rank = ranks.rank(0);
      Buffer value = rank.ints(1, 2, 3, 4);
      Buffer head = value.slice(0, 3);
      Buffer tail = value.slice(1, 3);
      Buffer other = rank.ints(0, 0, 0);
      String message =
          refusal(
              () -> {
                rank.comm().allReduce(head, head, ReduceOp.MAX, rank.stream());
                rank.comm().broadcast(tail, other, 0, rank.stream());
              });
      assertEquals(
          "operations of one group have no order, so one must not write what another one uses: "
              + "operation 1, allReduce of %s, writes recv, %s, and operation 2, broadcast of %s, reads send, %s; "
                  .formatted(rank.comm(), head, rank.comm(), tail)
              + "they share 8 bytes at 0x%x; end the group between them".formatted(tail.address()),
          message);
    }
  }

  @Test
  void sameBufferInPlaceTwiceIsRefused() {
    try (Ranks ranks = Ranks.of(underTest(), fewRanks())) {
      ranks.each(
          rank -> {
            Buffer value = rank.ints(rank.rank(), 1);
            assertNames(
                refusal(
                    () -> {
                      rank.comm().allReduce(value, value, ReduceOp.MAX, rank.stream());
                      rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream());
                    }),
                "operation 1, allReduce of " + rank.comm(),
                "operation 2, allReduce of " + rank.comm());
            assertArrayEquals(new int[] {rank.rank(), 1}, rank.downloadInts(value));
          });
    }
  }

  @Test
  void conflictAcrossStreamsAndCommunicatorsIsRefused() {
    try (Ranks ranks = Ranks.of(underTest(), fewRanks())) {
      ranks.each(
          rank -> {
            Buffer value = rank.ints(1);
            try (Communicator child = rank.comm().split(0, 0);
                Stream another = child.newStream()) {
              assertNames(
                  refusal(
                      () -> {
                        rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream());
                        child.allReduce(value, value, ReduceOp.SUM, another);
                      }),
                  "allReduce of " + rank.comm(),
                  "allReduce of " + child);
            }
          });
    }
  }

  @Test
  void conflictBetweenRanksOfOneThreadIsRefused() {
    try (Ranks ranks = Ranks.of(underTest(), fewRanks())) {
      ranks.rank(0);
      List<Rank> all = ranks.all();
      Rank last = all.getLast();
      Buffer value = all.getFirst().ints(1);
      Buffer view = underTest().maxRanks() == 1 ? value : sameAddressOn(last, value);
      assertNames(
          refusal(
              () -> {
                all.getFirst()
                    .comm()
                    .allReduce(value, value, ReduceOp.SUM, all.getFirst().stream());
                last.comm().allReduce(view, view, ReduceOp.SUM, last.stream());
              }),
          "allReduce of " + all.getFirst().comm(),
          "allReduce of " + last.comm());
    }
  }

  /** Returns a view of the same memory for another rank. */
  private static Buffer sameAddressOn(Rank rank, Buffer value) {
    return value.memoryType() == Buffer.MemoryType.HOST
        ? Buffer.ofHostSegment(value.segment(), value.type(), value.count())
        : Buffer.ofDeviceAddress(
            value.address(), value.type(), value.count(), rank.comm().device());
  }

  @Test
  void nestedGroupsAreCheckedWhenOutermostEnds() {
    try (Ranks ranks = Ranks.of(underTest(), fewRanks())) {
      ranks.each(
          rank -> {
            Buffer value = rank.ints(1);
            Runnable one = () -> rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream());
            AtomicBoolean inner = new AtomicBoolean();
            refusal(
                () -> {
                  Group.run(one);
                  Group.run(one);
                  inner.set(true);
                });
            assertTrue(inner.get(), "the inner groups ended");
            Group.run(() -> Group.run(one));
            Group.run(one);
            assertArrayEquals(
                new int[] {rank.size() * rank.size()}, rank.downloadInts(value), "two groups");
          });
    }
  }

  @Test
  void conflictInCapturedGroupIsRefused() {
    try (Ranks ranks = Ranks.of(underTest(), fewRanks())) {
      ranks.each(
          rank -> {
            Buffer value = rank.ints(1);
            Buffer other = rank.ints(0);
            rank.stream().synchronize();
            Runnable group =
                () -> {
                  rank.comm().allReduce(value, other, ReduceOp.SUM, rank.stream());
                  rank.comm().allReduce(other, value, ReduceOp.SUM, rank.stream());
                };
            List<Stream> streams = List.of(rank.stream());
            assertThrows(
                IllegalArgumentException.class,
                () -> Graph.capture(streams, () -> Group.run(group)));
            try (Graph graph = Graph.capture(streams, group).getFirst()) {
              graph.launch(rank.stream());
              assertArrayEquals(
                  new int[] {rank.size() * rank.size()},
                  rank.downloadInts(value),
                  "without a group the stream orders them");
            }
          });
    }
  }

  @Test
  void operationsOfFailedInnerGroupDoNotConflict() {
    try (Ranks ranks = Ranks.of(underTest(), fewRanks())) {
      ranks.each(
          rank -> {
            Buffer value = rank.ints(1);
            Group.run(
                () -> {
                  rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream());
                  assertThrows(
                      ArithmeticException.class,
                      () ->
                          Group.run(
                              () -> {
                                rank.comm().allReduce(value, value, ReduceOp.MAX, rank.stream());
                                throw new ArithmeticException("inner");
                              }));
                });
            assertArrayEquals(new int[] {rank.size()}, rank.downloadInts(value));
          });
    }
  }

  @Test
  void adjacentRangesAreAccepted() {
    try (Ranks ranks = Ranks.of(underTest(), fewRanks())) {
      ranks.each(
          rank -> {
            int n = rank.size();
            Buffer value = rank.ints(1, 2, 3, 4);
            Group.run(
                () -> {
                  for (int i : new int[] {2, 0, 3, 1}) {
                    Buffer element = value.slice(i, 1);
                    rank.comm().allReduce(element, element, ReduceOp.SUM, rank.stream());
                  }
                });
            assertArrayEquals(new int[] {n, 2 * n, 3 * n, 4 * n}, rank.downloadInts(value));
          });
    }
  }

  @Test
  void readsOfTheSameMemoryAreAccepted() {
    try (Ranks ranks = Ranks.of(underTest(), fewRanks())) {
      ranks.each(
          rank -> {
            int n = rank.size();
            int right = (rank.rank() + 1) % n;
            int left = (rank.rank() + n - 1) % n;
            Buffer value = rank.ints(rank.rank(), 7);
            Buffer sum = rank.ints(0, 0);
            Buffer most = rank.ints(0, 0);
            Buffer received = rank.ints(0);
            Group.run(
                () -> {
                  rank.comm().allReduce(value, sum, ReduceOp.SUM, rank.stream());
                  rank.comm().allReduce(value, most, ReduceOp.MAX, rank.stream());
                  rank.comm().send(value.slice(0, 1), right, rank.stream());
                  rank.comm().recv(received, left, rank.stream());
                });
            assertArrayEquals(new int[] {n * (n - 1) / 2, 7 * n}, rank.downloadInts(sum));
            assertArrayEquals(new int[] {n - 1, 7}, rank.downloadInts(most));
            assertArrayEquals(new int[] {left}, rank.downloadInts(received));
          });
    }
  }

  @Test
  void inPlaceOperationsDoNotConflictWithThemselves() {
    try (Ranks ranks = Ranks.of(underTest(), fewRanks())) {
      ranks.each(
          rank -> {
            Communicator comm = rank.comm();
            Stream stream = rank.stream();
            int n = rank.size();
            int me = rank.rank();
            int root = n - 1;
            Buffer reduced = rank.ints(1);
            Buffer sent = rank.ints(me);
            Buffer rooted = rank.ints(1);
            Buffer gathered = rank.ints(filled(n, me));
            Buffer scattered = rank.ints(filled(n, 1));
            Buffer collected = rank.ints(filled(n, me));
            Buffer dealt = rank.ints(IntStream.range(0, n).toArray());
            Group.run(
                () -> {
                  comm.allReduce(reduced, reduced, ReduceOp.SUM, stream);
                  comm.broadcast(sent, root, stream);
                  comm.reduce(rooted, rooted, ReduceOp.SUM, root, stream);
                  comm.allGather(gathered.slice(me, 1), gathered, stream);
                  comm.reduceScatter(scattered, scattered.slice(me, 1), ReduceOp.SUM, stream);
                  comm.gather(collected.slice(me, 1), collected, root, stream);
                  comm.scatter(dealt, dealt.slice(me, 1), root, stream);
                });
            int[] ranksInOrder = IntStream.range(0, n).toArray();
            assertArrayEquals(new int[] {n}, rank.downloadInts(reduced));
            assertArrayEquals(new int[] {root}, rank.downloadInts(sent));
            assertArrayEquals(new int[] {me == root ? n : 1}, rank.downloadInts(rooted));
            assertArrayEquals(ranksInOrder, rank.downloadInts(gathered));
            assertEquals(n, rank.downloadInts(scattered)[me]);
            assertArrayEquals(
                me == root ? ranksInOrder : filled(n, me), rank.downloadInts(collected));
            assertArrayEquals(ranksInOrder, rank.downloadInts(dealt));
          });
    }
  }

  private static int[] filled(int count, int value) {
    int[] filled = new int[count];
    Arrays.fill(filled, value);
    return filled;
  }

  @Test
  void buffersUnusedOnThisRankDoNotConflict() {
    try (Ranks ranks = Ranks.of(underTest(), fewRanks())) {
      ranks.each(
          rank -> {
            int n = rank.size();
            boolean root = rank.rank() == 0;
            Buffer written = rank.ints(1, 1);
            // Where only the root's buffer is used, the other ranks pass one that others write.
            Buffer spare = root ? rank.ints(5, 6) : written;
            Buffer copied = rank.ints(0, 0);
            Buffer reduced = root ? rank.ints(0, 0) : written;
            Buffer one = rank.ints(2, 2);
            Group.run(
                () -> {
                  rank.comm().allReduce(written, written, ReduceOp.SUM, rank.stream());
                  rank.comm().broadcast(spare, copied, 0, rank.stream());
                  rank.comm().reduce(one, reduced, ReduceOp.SUM, 0, rank.stream());
                  rank.comm()
                      .gather(one.slice(0, 1), root ? allOf(rank) : written, 0, rank.stream());
                  rank.comm()
                      .scatter(
                          root ? allOf(rank) : written, allOf(rank).slice(0, 1), 0, rank.stream());
                });
            assertArrayEquals(new int[] {n, n}, rank.downloadInts(written));
            assertArrayEquals(new int[] {5, 6}, rank.downloadInts(copied));
            assertArrayEquals(
                root ? new int[] {2 * n, 2 * n} : new int[] {n, n}, rank.downloadInts(reduced));
          });
    }
  }

  private static Buffer allOf(Rank rank) {
    return rank.allocate(DataType.INT32, rank.size());
  }

  @Test
  void inPlaceBroadcastOnlyReadsOnRoot() {
    try (Ranks ranks = Ranks.of(underTest(), fewRanks())) {
      ranks.each(
          rank -> {
            int n = rank.size();
            boolean root = rank.rank() == 0;
            Buffer first = rank.ints(root ? 4 : 0);
            Buffer second = root ? first : rank.ints(0);
            Buffer added = root ? first : rank.ints(3);
            Buffer sum = rank.ints(0);
            Group.run(
                () -> {
                  rank.comm().broadcast(first, 0, rank.stream());
                  rank.comm().broadcast(second, 0, rank.stream());
                  rank.comm().allReduce(added, sum, ReduceOp.SUM, rank.stream());
                });
            assertArrayEquals(new int[] {4}, rank.downloadInts(first));
            assertArrayEquals(new int[] {4}, rank.downloadInts(second));
            assertArrayEquals(new int[] {4 + 3 * (n - 1)}, rank.downloadInts(sum));
          });
    }
  }

  @Test
  void selfSendAndReceiveInPlaceAreAccepted() {
    try (Ranks ranks = Ranks.of(underTest(), fewRanks())) {
      ranks.each(
          rank -> {
            int n = rank.size();
            Buffer gathered = rank.ints(filled(2 * n, 10 + rank.rank()));
            Buffer sum = rank.ints(0);
            Group.run(
                () -> {
                  for (int half = 0; half < 2; half++) {
                    Buffer mine = gathered.slice(half * n + rank.rank(), 1);
                    for (int peer = 0; peer < n; peer++) {
                      rank.comm().send(mine, peer, rank.stream());
                      rank.comm().recv(gathered.slice(half * n + peer, 1), peer, rank.stream());
                    }
                  }
                  Buffer mine = gathered.slice(rank.rank(), 1);
                  rank.comm().allReduce(mine, sum, ReduceOp.MAX, rank.stream());
                });
            assertArrayEquals(
                IntStream.range(0, 2 * n).map(i -> 10 + i % n).toArray(),
                rank.downloadInts(gathered));
            assertArrayEquals(new int[] {9 + n}, rank.downloadInts(sum));
          });
    }
  }

  @Test
  void selfSendAndReceiveThatOverlapAreRefused() {
    try (Ranks ranks = Ranks.of(underTest(), fewRanks())) {
      ranks.each(
          rank -> {
            Communicator comm = rank.comm();
            int me = rank.rank();
            Buffer value = rank.ints(1, 2, 3);
            Buffer head = value.slice(0, 2);
            Buffer tail = value.slice(1, 2);
            assertNames(
                refusal(
                    () -> {
                      comm.send(head, me, rank.stream());
                      comm.recv(tail, me, rank.stream());
                    }),
                "operation 1, send of " + comm,
                "operation 2, recv of " + comm);
            Buffer first = value.slice(0, 1);
            Buffer second = value.slice(1, 1);
            assertNames(
                refusal(
                    () -> {
                      comm.send(first, me, rank.stream());
                      comm.send(second, me, rank.stream());
                      comm.recv(second, me, rank.stream());
                      comm.recv(first, me, rank.stream());
                    }),
                "operation 2, send of " + comm,
                "operation 3, recv of " + comm);
            assertArrayEquals(new int[] {1, 2, 3}, rank.downloadInts(value));
          });
    }
  }

  @Test
  void emptyOperationsDoNotConflict() {
    try (Ranks ranks = Ranks.of(underTest(), fewRanks())) {
      ranks.each(
          rank -> {
            int n = rank.size();
            int right = (rank.rank() + 1) % n;
            int left = (rank.rank() + n - 1) % n;
            Buffer value = rank.ints(1, 2);
            Buffer nothing = value.slice(1, 0);
            Group.run(
                () -> {
                  rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream());
                  rank.comm().allReduce(nothing, nothing, ReduceOp.MAX, rank.stream());
                  rank.comm().send(nothing, right, rank.stream());
                  rank.comm().recv(nothing, left, rank.stream());
                });
            assertArrayEquals(new int[] {n, 2 * n}, rank.downloadInts(value));
          });
    }
  }

  @Test
  void hundredsOfDisjointSlicesAreAccepted() {
    int count = 512;
    try (Ranks ranks = Ranks.of(underTest(), fewRanks())) {
      ranks.each(
          rank -> {
            int n = rank.size();
            Buffer in = rank.ints(IntStream.range(0, count).toArray());
            Buffer out = rank.ints(new int[count]);
            for (int step : new int[] {1, 3, count - 1}) {
              out.fill((byte) 0, rank.stream());
              Group.run(
                  () -> {
                    for (int i = 0; i < count; i++) {
                      int at = i * step % count;
                      rank.comm()
                          .allReduce(
                              in.slice(at, 1), out.slice(at, 1), ReduceOp.SUM, rank.stream());
                    }
                  });
              assertArrayEquals(
                  IntStream.range(0, count).map(i -> i * n).toArray(), rank.downloadInts(out));
            }
            String message =
                refusal(
                    () -> {
                      for (int i = 0; i < count; i++) {
                        int at = i == 300 ? 17 : i;
                        rank.comm()
                            .allReduce(
                                in.slice(i, 1), out.slice(at, 1), ReduceOp.SUM, rank.stream());
                      }
                    });
            assertNames(message, "operation 18, ", "operation 301, ");
          });
    }
  }
}
