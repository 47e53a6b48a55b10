package io.nccl4j.contract;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.DataType;
import io.nccl4j.Event;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.function.Executable;

/** The order of work within a stream, between streams by events, and relative to the host. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class StreamsContract {
  private static final Duration LIMIT = Duration.ofSeconds(20);

  abstract BackendUnderTest underTest();

  private int fewRanks() {
    return Math.min(3, underTest().maxRanks());
  }

  @Test
  void streamRunsWorkInCallOrder() {
    try (Ranks ranks = Ranks.of(underTest(), fewRanks())) {
      ranks.each(
          rank -> {
            Buffer value = rank.allocate(DataType.UINT8, 100_000);
            Buffer copy = rank.allocate(DataType.UINT8, 100_000);
            for (int i = 1; i <= 20; i++) {
              value.fill((byte) i, rank.stream());
              copy.copyFromAsync(value, rank.stream());
              value.fill((byte) 0x7F, rank.stream());
            }
            byte[] got = rank.download(copy).toArray(ValueLayout.JAVA_BYTE);
            assertEquals(20, got[0]);
            assertEquals(20, got[99_999]);
          });
    }
  }

  @Test
  void streamOfHighPriorityRunsCollectives() {
    int n = fewRanks();
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            try (Stream high = rank.comm().newStream(Stream.Priority.HIGH)) {
              Buffer value = rank.ints(3);
              rank.stream().synchronize();
              rank.comm().allReduce(value, value, ReduceOp.SUM, high);
              high.synchronize();
              assertArrayEquals(new int[] {3 * n}, rank.downloadInts(value));
            }
            Throwable thrown =
                assertThrows(NullPointerException.class, () -> rank.comm().newStream(null));
            assertEquals("priority", thrown.getMessage());
          });
    }
  }

  @Test
  void collectivesAreOrderedWithCopiesAndFills() {
    int n = fewRanks();
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            Buffer value = rank.allocate(DataType.UINT8, 5000);
            Buffer copy = rank.allocate(DataType.UINT8, 5000);
            value.fill((byte) 1, rank.stream());
            rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream());
            copy.copyFromAsync(value, rank.stream());
            value.fill((byte) 9, rank.stream());
            rank.comm().allReduce(copy, copy, ReduceOp.SUM, rank.stream());
            assertEquals((long) n * n, DataType.UINT8.getLong(rank.download(copy), 4999));
            assertEquals(9, DataType.UINT8.getLong(rank.download(value), 4999));
          });
    }
  }

  @Test
  void eventOrdersTwoStreams() {
    int n = fewRanks();
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            try (Stream second = rank.comm().newStream();
                Event summed = rank.comm().newEvent();
                Event doubled = rank.comm().newEvent()) {
              Buffer value = rank.ints(1);
              for (int i = 0; i < 5; i++) {
                rank.comm().allReduce(value, value, ReduceOp.MAX, rank.stream());
                rank.stream().record(summed);
                second.waitFor(summed);
                rank.comm().allReduce(value, value, ReduceOp.SUM, second);
                second.record(doubled);
                rank.stream().waitFor(doubled);
              }
              assertEquals((int) Math.pow(n, 5), rank.downloadInts(value)[0]);
            }
          });
    }
  }

  @Test
  void unrecordedEventIsComplete() {
    try (Ranks ranks = Ranks.of(underTest(), 1);
        Event event = ranks.rank(0).comm().newEvent()) {
      assertTrue(event.isComplete());
      event.synchronize(LIMIT);
      ranks.rank(0).stream().waitFor(event);
      ranks.rank(0).stream().synchronize(LIMIT);
    }
  }

  @Test
  void eventCompletesWhenStreamReachesIt() {
    try (Ranks ranks = Ranks.of(underTest(), 1);
        Event event = ranks.rank(0).comm().newEvent()) {
      Rank rank = ranks.rank(0);
      Buffer value = rank.allocate(DataType.UINT8, 1000);
      value.fill((byte) 3, rank.stream());
      rank.stream().record(event);
      event.synchronize(LIMIT);
      assertTrue(event.isComplete());
      assertEquals(3, DataType.UINT8.getLong(rank.download(value), 999));
    }
  }

  @Test
  void eventBehindStuckCollectiveIsNotComplete() throws Exception {
    try (StuckCollective stuck = StuckCollective.start(underTest());
        Event event = stuck.rank().comm().newEvent()) {
      stuck.stream().record(event);
      assertFalse(event.isComplete());
      assertFalse(stuck.stream().isComplete());
      assertThrows(NcclTimeoutException.class, () -> event.synchronize(Duration.ofMillis(50)));
    }
  }

  @Test
  void eventRecordedAgainWaitsForLastRecordOnly() throws Exception {
    try (StuckCollective stuck = StuckCollective.start(underTest());
        Event event = stuck.rank().comm().newEvent()) {
      try (Stream other = stuck.rank().comm().newStream()) {
        stuck.stream().record(event);
        other.record(event);
        event.synchronize(LIMIT);
        assertTrue(event.isComplete());
      }
    }
  }

  @Test
  void eventCanBeClosedWhileStreamWaitsForIt() {
    try (Ranks ranks = Ranks.of(underTest(), 1);
        Stream second = ranks.rank(0).comm().newStream()) {
      Rank rank = ranks.rank(0);
      Buffer value = rank.allocate(DataType.UINT8, 1_000_000);
      Event event = rank.comm().newEvent();
      value.fill((byte) 1, rank.stream());
      rank.stream().record(event);
      second.waitFor(event);
      value.fill((byte) 2, second);
      event.close();
      event.close();
      assertFalse(event.isOpen());
      second.synchronize(LIMIT);
      assertEquals(2, DataType.UINT8.getLong(rank.download(value), 0));
    }
  }

  @Test
  void elapsedTimeCoversWorkBetweenEvents() {
    try (Ranks ranks = Ranks.of(underTest(), 1);
        Event start = ranks.rank(0).comm().newEvent();
        Event end = ranks.rank(0).comm().newEvent()) {
      Rank rank = ranks.rank(0);
      Buffer value = rank.allocate(DataType.UINT8, 4_000_000);
      long before = System.nanoTime();
      rank.stream().record(start);
      value.fill((byte) 1, rank.stream());
      rank.stream().record(end);
      end.synchronize(LIMIT);
      long around = System.nanoTime() - before;
      Duration elapsed = end.elapsedSince(start);
      assertTrue(elapsed.isPositive(), elapsed::toString);
      assertTrue(elapsed.toNanos() <= around + 1_000_000, elapsed + " within " + around + " ns");
    }
  }

  @Test
  void elapsedTimeOfUnrecordedEventIsRefused() {
    try (Ranks ranks = Ranks.of(underTest(), 1);
        Event recorded = ranks.rank(0).comm().newEvent();
        Event unrecorded = ranks.rank(0).comm().newEvent()) {
      ranks.rank(0).stream().record(recorded);
      recorded.synchronize(LIMIT);
      assertThrows(IllegalStateException.class, () -> recorded.elapsedSince(unrecorded));
      assertThrows(IllegalStateException.class, () -> unrecorded.elapsedSince(recorded));
    }
  }

  @Test
  void completionStageCompletesWhenWorkIsDone() throws Exception {
    int n = fewRanks();
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            Buffer value = rank.ints(1);
            rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream());
            CompletionStage<Void> done = rank.stream().completion();
            assertNull(done.toCompletableFuture().get(20, TimeUnit.SECONDS));
            assertEquals(n, rank.downloadInts(value)[0]);
          });
    }
  }

  @Test
  void dependentStageMayEnqueueMoreWork() throws Exception {
    int n = fewRanks();
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            Buffer value = rank.ints(1);
            rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream());
            CompletableFuture<Void> second =
                rank.stream()
                    .completion()
                    .thenCompose(
                        nothing -> {
                          rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream());
                          return rank.stream().completion();
                        })
                    .toCompletableFuture();
            second.get(20, TimeUnit.SECONDS);
            assertEquals(n * n, rank.downloadInts(value)[0]);
          });
    }
  }

  @Test
  void blockedDependentStageDoesNotBlockStream() throws Exception {
    try (StuckCollective stuck = StuckCollective.start(underTest())) {
      Rank rank = stuck.rank();
      CompletableFuture<Void> release = new CompletableFuture<>();
      CompletableFuture<Thread> waiting = new CompletableFuture<>();
      CompletableFuture<Void> dependent =
          stuck.stream()
              .completion()
              .thenRun(
                  () -> {
                    waiting.complete(Thread.currentThread());
                    release.join();
                  })
              .toCompletableFuture();
      stuck.join();
      assertNotSame(Thread.currentThread(), waiting.get(20, TimeUnit.SECONDS));
      Buffer value = rank.ints(4);
      rank.stream().synchronize();
      int[] got = new int[1];
      value.copyTo(MemorySegment.ofArray(got), stuck.stream());
      assertArrayEquals(new int[] {4}, got);
      release.complete(null);
      dependent.get(20, TimeUnit.SECONDS);
    }
  }

  @Test
  void completionOfIdleStreamCompletes() throws Exception {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      Stream stream = ranks.rank(0).stream();
      stream.synchronize();
      assertTrue(stream.isComplete());
      assertNull(stream.completion().toCompletableFuture().get(20, TimeUnit.SECONDS));
    }
  }

  @Test
  void streamsOfOneDeviceDoNotWaitForEachOther() throws Exception {
    try (StuckCollective stuck = StuckCollective.start(underTest());
        Stream other = stuck.rank().comm().newStream();
        Buffer value = stuck.rank().comm().newBuffer(DataType.UINT8, 100)) {
      value.fill((byte) 1, other);
      other.synchronize(LIMIT);
      assertTrue(other.isComplete());
      assertFalse(stuck.stream().isComplete());
    }
  }

  @Test
  void closingStreamFinishesItsWork() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      Rank rank = ranks.rank(0);
      Buffer value = rank.allocate(DataType.UINT8, 3_000_000);
      rank.stream().synchronize();
      Stream closing = rank.comm().newStream();
      assertTrue(closing.isOpen());
      for (int i = 0; i < 10; i++) {
        value.fill((byte) i, closing);
      }
      closing.close();
      closing.close();
      assertFalse(closing.isOpen());
      assertEquals(9, DataType.UINT8.getLong(rank.download(value), 2_999_999));
    }
  }

  @Test
  void closedStreamOrEventIsRefusedByName() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      Rank rank = ranks.rank(0);
      Buffer value = rank.ints(1);
      Stream stream = rank.comm().newStream();
      Event event = rank.comm().newEvent();
      stream.close();
      event.close();
      refusedAsClosed("stream", stream::synchronize);
      refusedAsClosed("stream", stream::isComplete);
      refusedAsClosed("stream", stream::completion);
      refusedAsClosed("stream", () -> value.fill((byte) 0, stream));
      refusedAsClosed("stream", () -> value.copyFromAsync(value, stream));
      refusedAsClosed("stream", () -> rank.comm().allReduce(value, value, ReduceOp.SUM, stream));
      refusedAsClosed("event", () -> rank.stream().record(event));
      refusedAsClosed("event", () -> rank.stream().waitFor(event));
      refusedAsClosed("event", event::isComplete);
      refusedAsClosed("event", () -> event.synchronize(LIMIT));
    }
  }

  @Test
  void nonPositiveTimeoutIsRefused() {
    try (Ranks ranks = Ranks.of(underTest(), 1);
        Event event = ranks.rank(0).comm().newEvent()) {
      Stream stream = ranks.rank(0).stream();
      for (Duration bad : new Duration[] {Duration.ZERO, Duration.ofMillis(-1)}) {
        Throwable thrown =
            assertThrows(IllegalArgumentException.class, () -> stream.synchronize(bad));
        assertEquals("timeout is " + bad + "; it must be positive", thrown.getMessage());
        assertThrows(IllegalArgumentException.class, () -> event.synchronize(bad));
      }
    }
  }

  @Test
  void eventOfAnotherDeviceCanBeWaitedForButNotRecorded() {
    try (Backend backend = underTest().open(2)) {
      assumeTrue(backend.devices().size() > 1, "needs two devices");
      try (Stream first = backend.newStream(0);
          Event second = backend.newEvent(1);
          Stream secondStream = backend.newStream(1)) {
        Throwable thrown = assertThrows(IllegalArgumentException.class, () -> first.record(second));
        assertEquals("event is of device 1; this stream is of device 0", thrown.getMessage());
        secondStream.record(second);
        first.waitFor(second);
        first.synchronize(LIMIT);
      }
    }
  }

  private static void refusedAsClosed(String owner, Executable use) {
    Throwable thrown = assertThrows(IllegalStateException.class, use);
    assertTrue(thrown.getMessage().startsWith(owner + " is closed"), thrown::toString);
  }
}
