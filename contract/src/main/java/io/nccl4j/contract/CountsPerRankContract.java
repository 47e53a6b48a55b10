package io.nccl4j.contract;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Collectives in which the ranks have different counts, some of them 0. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class CountsPerRankContract {
  abstract BackendUnderTest underTest();

  List<Integer> rankCounts() {
    return underTest().rankCounts(1, 2, 3, 4, 8);
  }

  /** Returns the number of elements that a rank sends to another: 0 to 3, and many to rank 1. */
  private static int sent(int from, int to) {
    return to == 1 ? 70_000 + from : (3 * from + to) % 4;
  }

  private static long[] counts(int n) {
    return IntStream.range(0, n).mapToLong(rank -> sent(0, rank)).toArray();
  }

  /** Returns the elements of all ranks, packed in rank order; each is its index in them. */
  private static int[] packed(int n) {
    return IntStream.range(0, (int) LongStream.of(counts(n)).sum()).toArray();
  }

  private static int begin(int rank) {
    return IntStream.range(0, rank).map(lower -> sent(0, lower)).sum();
  }

  private static int[] part(int[] all, int rank) {
    return Arrays.copyOfRange(all, begin(rank), begin(rank + 1));
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void allGatherPacksTheDataOfAllRanks(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            int[] all = packed(n);
            Buffer send = rank.ints(part(all, rank.rank()));
            Buffer recv = rank.allocate(DataType.INT32, all.length);
            rank.comm().allGather(send, recv, counts(n), rank.stream());
            assertArrayEquals(all, rank.downloadInts(recv));
            int[] own = new int[all.length];
            System.arraycopy(all, begin(rank.rank()), own, begin(rank.rank()), (int) send.count());
            Buffer inPlace = rank.ints(own);
            rank.comm()
                .allGather(
                    inPlace.slice(begin(rank.rank()), send.count()),
                    inPlace,
                    counts(n),
                    rank.stream());
            assertArrayEquals(all, rank.downloadInts(inPlace));
          });
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void reduceScatterWritesEachRanksPart(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            int[] all = packed(n);
            int[] sum = part(IntStream.of(all).map(value -> n * value).toArray(), rank.rank());
            Buffer send = rank.ints(all);
            Buffer recv = rank.allocate(DataType.INT32, sum.length);
            rank.comm().reduceScatter(send, recv, counts(n), ReduceOp.SUM, rank.stream());
            assertArrayEquals(sum, rank.downloadInts(recv));
            Buffer inPlace = send.slice(begin(rank.rank()), sum.length);
            rank.comm().reduceScatter(send, inPlace, counts(n), ReduceOp.SUM, rank.stream());
            assertArrayEquals(sum, rank.downloadInts(inPlace));
          });
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void allToAllSendsEachRankItsPart(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            Exchange exchange = new Exchange(rank);
            exchange.enqueue();
            exchange.check();
          });
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void oneThreadDrivesAllRanksInGroup(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      int[] all = packed(n);
      List<Exchange> exchanges = new ArrayList<>();
      List<Buffer> gathered = new ArrayList<>();
      List<Buffer> scattered = new ArrayList<>();
      ranks.inOneThread(
          rank -> {
            exchanges.add(new Exchange(rank));
            gathered.add(rank.allocate(DataType.INT32, all.length));
            scattered.add(rank.allocate(DataType.INT32, part(all, rank.rank()).length));
          });
      Group.run(
          () ->
              ranks.inOneThread(
                  rank -> {
                    Communicator comm = rank.comm();
                    Stream stream = rank.stream();
                    exchanges.get(rank.rank()).enqueue();
                    Buffer own = rank.ints(part(all, rank.rank()));
                    comm.allGather(own, gathered.get(rank.rank()), counts(n), stream);
                    Buffer out = scattered.get(rank.rank());
                    comm.reduceScatter(rank.ints(all), out, counts(n), ReduceOp.MAX, stream);
                  }));
      ranks.inOneThread(
          rank -> {
            exchanges.get(rank.rank()).check();
            assertArrayEquals(all, rank.downloadInts(gathered.get(rank.rank())));
            assertArrayEquals(
                part(all, rank.rank()), rank.downloadInts(scattered.get(rank.rank())));
          });
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void graphRunsThemAtEachLaunch(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            int[] all = packed(n);
            Buffer send = rank.ints(all);
            Buffer part = rank.ints(part(all, rank.rank()));
            rank.stream().synchronize();
            Runnable step =
                () -> {
                  Communicator comm = rank.comm();
                  comm.reduceScatter(send, part, counts(n), ReduceOp.SUM, rank.stream());
                  comm.allGather(part, send, counts(n), rank.stream());
                };
            try (Graph graph = Graph.capture(rank.stream(), step)) {
              graph.launch(rank.stream());
              graph.launch(rank.stream());
              assertArrayEquals(
                  IntStream.of(all).map(value -> n * n * value).toArray(), rank.downloadInts(send));
            }
          });
    }
  }

  @Test
  void countsThatDoNotFitAreRefused() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      Rank rank = ranks.rank(0);
      Communicator comm = rank.comm();
      Stream stream = rank.stream();
      Buffer two = rank.ints(1, 2);
      Buffer three = rank.ints(1, 2, 3);
      long[] fits = {2};
      for (long[] counts : new long[][] {{}, {3}, {-2}, {2, 0}, {Long.MAX_VALUE}}) {
        String rule =
            " is %s; it must have a count of 0 or more for each of 1 ranks, in sum %s's count, 2";
        String text = Arrays.toString(counts);
        refused(
            "counts" + rule.formatted(text, "recv"),
            () -> comm.allGather(three, two, counts, stream));
        refused(
            "counts" + rule.formatted(text, "send"),
            () -> comm.reduceScatter(two, three, counts, ReduceOp.SUM, stream));
        refused(
            "sendCounts" + rule.formatted(text, "send"),
            () -> comm.allToAll(two, counts, three, counts, stream));
        refused(
            "recvCounts" + rule.formatted(text, "recv"),
            () -> comm.allToAll(three, new long[] {3}, two, counts, stream));
      }
      refused(
          "send has count 3; it must be counts[0], 2",
          () -> comm.allGather(three, two, fits, stream));
      refused(
          "recv has count 3; it must be counts[0], 2",
          () -> comm.reduceScatter(two, three, fits, ReduceOp.SUM, stream));
      refused(
          "recvCounts[0] is 3; for this rank itself it must be that of sendCounts, 2",
          () -> comm.allToAll(two, fits, three, new long[] {3}, stream));
      assertNamed("counts", () -> comm.allGather(two, three, null, stream));
      assertNamed("counts", () -> comm.reduceScatter(two, three, null, ReduceOp.SUM, stream));
      assertNamed("op", () -> comm.reduceScatter(two, two, fits, null, stream));
      assertNamed("sendCounts", () -> comm.allToAll(two, null, three, fits, stream));
      assertNamed("recvCounts", () -> comm.allToAll(two, fits, three, null, stream));
      assertNamed("stream", () -> comm.allToAll(two, fits, rank.ints(3, 4), fits, null));
    }
  }

  @Test
  void overlapThatIsNotInPlaceIsRefused() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      Rank rank = ranks.rank(0);
      Communicator comm = rank.comm();
      Stream stream = rank.stream();
      Buffer all = rank.ints(1, 2, 3);
      Buffer low = all.slice(0, 2);
      Buffer high = all.slice(1, 2);
      long[] counts = {2};
      String rule = "send and recv overlap; they must be separate, or in-place: ";
      refused(
          rule + "send == recv + the counts of the lower ranks",
          () -> comm.allGather(high, low, counts, stream));
      refused(
          rule + "recv == send + the counts of the lower ranks",
          () -> comm.reduceScatter(low, high, counts, ReduceOp.SUM, stream));
      refused(
          "send and recv overlap; allToAll has no in-place form",
          () -> comm.allToAll(low, counts, low, counts, stream));
    }
  }

  private static void refused(String message, Executable use) {
    assertEquals(message, assertThrows(IllegalArgumentException.class, use).getMessage());
  }

  private static void assertNamed(String argument, Executable use) {
    assertEquals(argument, assertThrows(NullPointerException.class, use).getMessage());
  }

  /** An all-to-all of one rank: each element has the numbers of its sender and its receiver. */
  private static final class Exchange {
    private final Rank rank;
    private final long[] sendCounts;
    private final long[] recvCounts;
    private final Buffer send;
    private final Buffer recv;

    Exchange(Rank rank) {
      this.rank = rank;
      int me = rank.rank();
      this.sendCounts = all().mapToLong(peer -> sent(me, peer)).toArray();
      this.recvCounts = all().mapToLong(peer -> sent(peer, me)).toArray();
      this.send = rank.ints(all().flatMap(peer -> message(me, peer)).toArray());
      this.recv = rank.allocate(DataType.INT32, LongStream.of(recvCounts).sum());
    }

    private IntStream all() {
      return IntStream.range(0, rank.size());
    }

    private static IntStream message(int from, int to) {
      return IntStream.range(0, sent(from, to)).map(i -> 100 * from + to + 10_000 * (i + 1));
    }

    void enqueue() {
      rank.comm().allToAll(send, sendCounts, recv, recvCounts, rank.stream());
    }

    void check() {
      int[] expected = all().flatMap(peer -> message(peer, rank.rank())).toArray();
      assertArrayEquals(expected, rank.downloadInts(recv));
    }
  }
}
