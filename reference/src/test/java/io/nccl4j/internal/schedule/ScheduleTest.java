package io.nccl4j.internal.schedule;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.schedule.Layout;
import io.nccl4j.schedule.Protocol;
import io.nccl4j.schedule.TreePattern;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Random;
import java.util.function.Consumer;
import java.util.stream.IntStream;
import java.util.stream.LongStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Walks all steps with ranks that record, instead of adding, whose data they have folded in which
 * order.
 */
class ScheduleTest {
  private static final long SEED = Long.getLong("test.seed", 20261121);

  static Stream<Schedule> schedules() {
    return IntStream.of(1, 2, 3, 4, 5, 8, 11, 16, 17).boxed().flatMap(ScheduleTest::ofRanks);
  }

  private static Stream<Schedule> ofRanks(int ranks) {
    List<Integer> order = new ArrayList<>(IntStream.range(0, ranks).boxed().toList());
    Collections.shuffle(order, new Random(SEED));
    Layout small = Layout.defaults().withChunkBytes(2048).withSliceBytes(512);
    Layout permuted =
        small
            .withChannels(3)
            .withRingOrders(List.of(order, order.reversed()))
            .withTreeOrders(List.of(order));
    return Stream.of(
            small,
            permuted,
            permuted.withNodes(4, TreePattern.BALANCED_TREE),
            small.withNodes(3, TreePattern.SPLIT_TREE).withChannels(1),
            small.withProtocol(Protocol.LL).withChannels(4),
            small.withProtocol(Protocol.LL128).withChunkBytes(1920))
        .flatMap(
            layout ->
                Stream.of(0L, 1L, 13L, 1000L, 40_001L)
                    .flatMap(
                        count ->
                            Stream.of(
                                new RingSchedule(layout, ranks, count, 2),
                                new TreeSchedule(layout, ranks, count, 2))));
  }

  /** The data in flight and the results of one slice. */
  private static final class Slice {
    private final Map<String, Queue<Sent>> links = new HashMap<>();
    private final Map<Integer, List<Integer>> results = new HashMap<>();
  }

  private record Sent(int step, List<Integer> folded) {}

  @ParameterizedTest
  @MethodSource("schedules")
  void everyRankGetsTheSameFoldOfAllRanks(Schedule schedule) {
    Map<String, Slice> slices = new HashMap<>();
    Map<String, Long> counts = new HashMap<>();
    schedule.walk(
        step -> {
          String key = step.channel() + " " + step.begin();
          play(step, slices.computeIfAbsent(key, k -> new Slice()));
          counts.put(key, step.count());
        });
    for (Slice slice : slices.values()) {
      List<Integer> result = slice.results.get(0);
      assertEquals(
          IntStream.range(0, schedule.ranks()).boxed().toList(), result.stream().sorted().toList());
      for (int rank = 0; rank < schedule.ranks(); rank++) {
        assertEquals(result, slice.results.get(rank), "rank " + rank);
      }
      assertTrue(
          slice.links.values().stream().allMatch(Queue::isEmpty),
          "data was sent that no rank received");
    }
    long all = counts.values().stream().mapToLong(Long::longValue).sum();
    assertEquals(schedule.ranks() == 1 ? 0 : schedule.count(), all);
  }

  private static void play(Step step, Slice slice) {
    List<Integer> data = step.action().receives() ? null : List.of(step.rank());
    for (int source : step.from()) {
      Sent sent = slice.links.get(source + ">" + step.rank()).remove();
      assertTrue(sent.step < step.step(), "received before it was sent: " + step);
      List<Integer> own =
          data != null ? data : step.action().reduces() ? List.of(step.rank()) : List.of();
      data = Stream.concat(sent.folded.stream(), own.stream()).toList();
    }
    if (step.action().keeps()) {
      assertEquals(null, slice.results.put(step.rank(), data), "a second result: " + step);
    }
    for (int target : step.to()) {
      slice
          .links
          .computeIfAbsent(step.rank() + ">" + target, k -> new ArrayDeque<>())
          .add(new Sent(step.step(), data));
    }
  }

  @ParameterizedTest
  @MethodSource("schedules")
  void countsWithoutWalkMatchTheWalk(Schedule schedule) {
    int ranks = schedule.ranks();
    long[][] elements = new long[ranks][ranks];
    long[] slices = new long[ranks];
    long[] largestSlice = new long[schedule.channels()];
    int[] lastStep = new int[schedule.channels()];
    Consumer<Step> count =
        step -> {
          for (int target : step.to()) {
            elements[step.rank()][target] += step.count();
            slices[step.rank()]++;
          }
          largestSlice[step.channel()] = Math.max(largestSlice[step.channel()], step.count());
          lastStep[step.channel()] = Math.max(lastStep[step.channel()], step.step());
        };
    schedule.walk(count);
    for (int rank = 0; rank < ranks; rank++) {
      long all = LongStream.of(elements[rank]).sum();
      assertEquals(all * schedule.elementBytes(), schedule.bytesSent(rank), "rank " + rank);
      long slicesSent = 0;
      for (int channel = 0; channel < schedule.channels(); channel++) {
        slicesSent += schedule.slicesSent(channel, rank);
      }
      assertEquals(slices[rank], slicesSent, "rank " + rank);
      for (int target = 0; target < ranks; target++) {
        long sent = 0;
        for (int channel = 0; channel < schedule.channels(); channel++) {
          sent += schedule.elementsBetween(channel, rank, target);
        }
        assertEquals(elements[rank][target], sent, rank + " to " + target);
      }
    }
    for (int channel = 0; ranks > 1 && channel < schedule.channels(); channel++) {
      assertEquals(largestSlice[channel], schedule.largestSlice(channel));
      assertTrue(lastStep[channel] <= schedule.hops(channel));
    }
  }

  @Test
  void ringOfFourRanksIsTheTextbookRing() {
    Layout layout = Layout.defaults().withChannels(1);
    List<String> found = new ArrayList<>();
    // Four floats per chunk: sixteen bytes.
    new RingSchedule(layout, 4, 16, 4)
        .walk(
            step ->
                found.add(
                    step.step() + ": " + step.rank() + " " + step.action() + " " + step.chunk()));
    assertEquals(28, found.size());
    assertEquals(
        List.of("0: 0 SEND 3", "0: 1 SEND 0", "0: 2 SEND 1", "0: 3 SEND 2"), found.subList(0, 4));
    assertEquals("1: 0 RECV_REDUCE_SEND 2", found.get(4));
    assertEquals("3: 2 RECV_REDUCE_COPY_SEND 2", found.get(14));
    assertEquals("6: 3 RECV 0", found.get(27));
  }

  @Test
  void hundredThousandRanksAreCountedWithoutWalk() {
    int ranks = 100_000;
    long count = 1L << 28;
    Schedule ring = new RingSchedule(Layout.defaults(), ranks, count, 4);
    Schedule tree =
        new TreeSchedule(Layout.defaults().withNodes(8, TreePattern.TREE), ranks, count, 4);
    long ringBytes = 0;
    long treeBytes = 0;
    for (int rank = 0; rank < ranks; rank++) {
      ringBytes += ring.bytesSent(rank);
      treeBytes += tree.bytesSent(rank);
    }
    // Each element crosses 2 (n - 1) links in both.
    assertEquals(2L * (ranks - 1) * count * 4, ringBytes);
    assertEquals(2L * (ranks - 1) * count * 4, treeBytes);
    assertEquals(199_998, ring.hops(0));
    // 12,500 nodes: from 0 to 8192, then thirteen halvings to an odd node, then seven ranks.
    assertEquals(2 * (14 + 7), tree.hops(0));
  }

  @Test
  void chainOfHundredThousandRanksHasDepthsWithoutWalk() {
    Layout chain = Layout.defaults().withNodes(100_000, TreePattern.TREE);
    assertEquals(2 * 99_999, new TreeSchedule(chain, 100_000, 1, 4).hops(0));
  }

  @Test
  void invalidArgumentsAreNamed() {
    assertMessage(
        "ranks is 0; it must be 1 or more", () -> new RingSchedule(Layout.defaults(), 0, 1, 4));
    assertMessage(
        "count is -1; it must be 0 or more", () -> new TreeSchedule(Layout.defaults(), 1, -1, 4));
    assertMessage(
        "elementBytes is 3; it must be 1, 2, 4 or 8",
        () -> new RingSchedule(Layout.defaults(), 1, 1, 3));
    assertMessage(
        "channels is 65; it must be from 1 to 64", () -> Layout.defaults().withChannels(65));
    assertMessage(
        "cellBytes is 1000; it must be a positive multiple of 512",
        () -> Layout.defaults().withCellBytes(1000));
    assertMessage(
        "chunkBytes is 2000; it must be a positive multiple of 1920",
        () -> Layout.defaults().withProtocol(Protocol.LL128).withChunkBytes(2000));
    assertMessage(
        "sliceBytes is 100; it must be a positive multiple of 512",
        () -> Layout.defaults().withSliceBytes(100));
    assertMessage(
        "ringOrders of channel 1 is [0, 2, 2]; it must contain every rank from 0 to 2 once",
        () -> Layout.defaults().withRingOrders(List.of(List.of(0, 1), List.of(0, 2, 2))));
    assertMessage(
        "treeOrders of channel 0 is empty; it must contain every rank once",
        () -> Layout.defaults().withTreeOrders(List.of(List.of())));
    assertMessage(
        "ranksPerNode is 0; it must be from 1 to 2147483647",
        () -> Layout.defaults().withNodes(0, TreePattern.TREE));
    assertMessage(
        "firstTreeChannels is -1; it must be from 0 to 64",
        () -> Layout.defaults().withFirstTreeChannels(-1));
    assertMessage(
        "order is [1, 2]; it must contain every rank from 0 to 1 once",
        () -> Ring.of(List.of(1, 2)));
  }

  private static void assertMessage(String message, Runnable action) {
    assertEquals(message, assertThrows(IllegalArgumentException.class, action::run).getMessage());
  }
}
