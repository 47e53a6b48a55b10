package io.nccl4j.contract;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.Event;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.Test;

/**
 * Closing buffers and streams that pending work uses. While a collective is pending, {@code close}
 * throws at once, although the object is then closed; memory and stream are released later. Once
 * the work is known to be complete, {@code close} succeeds.
 */
abstract class PendingUseContract {
  private static final Duration LIMIT = Duration.ofSeconds(20);

  abstract BackendUnderTest underTest();

  @Test
  void closingBufferInUseThrowsAndKeepsItsMemory() {
    try (StuckCollective stuck = StuckCollective.start(underTest())) {
      Buffer send = stuck.comm().newBuffer(DataType.INT32, 4);
      Buffer recv = stuck.comm().newBuffer(DataType.INT32, 4);
      stuck.comm().allReduce(send, recv, ReduceOp.SUM, stuck.stream());
      assertCloseThrows(send::close, stuck.stream());
      assertCloseThrows(recv::close, stuck.stream());
      send.close();
      assertThrows(IllegalStateException.class, send::address, "the buffer is still closed");
      stuck.join();
      stuck.join();
      stuck.stream().synchronize(LIMIT);
    }
  }

  @Test
  void closingBufferWithPendingSliceThrows() {
    try (StuckCollective stuck = StuckCollective.start(underTest())) {
      Buffer whole = stuck.comm().newBuffer(DataType.INT32, 8);
      Buffer part = whole.slice(4, 4);
      stuck.comm().allReduce(part, part, ReduceOp.SUM, stuck.stream());
      part.close();
      assertCloseThrows(whole::close, stuck.stream());
    }
  }

  @Test
  void buffersOfCopiesGroupsAndScalarsAreInUse() {
    try (StuckCollective stuck = StuckCollective.start(underTest())) {
      Communicator comm = stuck.comm();
      Buffer filled = comm.newBuffer(DataType.INT32, 4);
      Buffer copied = comm.newBuffer(DataType.INT32, 4);
      Buffer grouped = comm.newBuffer(DataType.INT32, 4);
      Buffer scalar = comm.newBuffer(DataType.INT32, 1);
      Buffer scaled = comm.newBuffer(DataType.INT32, 4);
      filled.fill((byte) 1, stuck.stream());
      copied.copyFromAsync(filled, stuck.stream());
      Group.run(() -> comm.allReduce(grouped, grouped, ReduceOp.SUM, stuck.stream()));
      ReduceOp.PreMulSum op = comm.newPreMulSum(scalar);
      comm.allReduce(scaled, scaled, op, stuck.stream());
      for (Buffer buffer : List.of(filled, copied, grouped, scalar, scaled)) {
        assertCloseThrows(buffer::close, stuck.stream());
      }
      op.close();
    }
  }

  @Test
  void launchedGraphUsesItsBuffers() {
    try (StuckCollective stuck = StuckCollective.start(underTest());
        Stream captured = stuck.comm().newStream()) {
      Buffer value = stuck.comm().newBuffer(DataType.INT32, 4);
      List<Graph> graphs =
          Graph.capture(
              List.of(captured),
              () -> stuck.comm().allReduce(value, value, ReduceOp.SUM, captured));
      graphs.getFirst().launch(stuck.stream());
      assertCloseThrows(value::close, stuck.stream());
      stuck.ranks().abort();
      graphs.getFirst().close();
    }
  }

  @Test
  void bufferBeforeSynchronizedEventMayBeClosed() {
    try (StuckCollective stuck = StuckCollective.start(underTest())) {
      Rank rank = stuck.rank();
      Buffer early = rank.comm().newBuffer(DataType.INT32, 4);
      Buffer late = rank.comm().newBuffer(DataType.INT32, 4);
      try (Stream stream = rank.comm().newStream();
          Event complete = rank.comm().newEvent();
          Event stuckEvent = rank.comm().newEvent()) {
        early.fill((byte) 1, stream);
        stream.record(complete);
        stuck.stream().record(stuckEvent);
        stream.waitFor(stuckEvent);
        late.fill((byte) 1, stream);
        complete.synchronize(LIMIT);
        assertDoesNotThrow(early::close);
        assertCloseThrows(late::close, stream);
        stuck.ranks().abort();
      }
    }
  }

  @Test
  void bufferBeforeEventAwaitedElsewhereMayBeClosed() {
    try (StuckCollective stuck = StuckCollective.start(underTest())) {
      Rank rank = stuck.rank();
      Buffer value = rank.comm().newBuffer(DataType.INT32, 4);
      Buffer other = rank.comm().newBuffer(DataType.INT32, 4);
      try (Stream first = rank.comm().newStream();
          Stream second = rank.comm().newStream();
          Event filled = rank.comm().newEvent();
          Event stuckEvent = rank.comm().newEvent()) {
        value.fill((byte) 1, first);
        first.record(filled);
        stuck.stream().record(stuckEvent);
        first.waitFor(stuckEvent);
        other.fill((byte) 1, first);
        second.waitFor(filled);
        second.synchronize(LIMIT);
        assertDoesNotThrow(value::close);
        assertCloseThrows(other::close, first);
        stuck.ranks().abort();
      }
    }
  }

  @Test
  void bufferBehindTwoWaitsForCollectiveIsInUse() {
    try (StuckCollective stuck = StuckCollective.start(underTest())) {
      Rank rank = stuck.rank();
      Buffer value = rank.comm().newBuffer(DataType.INT32, 4);
      try (Stream between = rank.comm().newStream();
          Stream last = rank.comm().newStream();
          Event stuckEvent = rank.comm().newEvent();
          Event passedOn = rank.comm().newEvent()) {
        stuck.stream().record(stuckEvent);
        between.waitFor(stuckEvent);
        between.record(passedOn);
        last.waitFor(passedOn);
        value.fill((byte) 1, last);
        assertCloseThrows(value::close, last);
        stuck.ranks().abort();
      }
    }
  }

  @Test
  void completionStageMayCloseBuffer() throws Exception {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      Rank rank = ranks.rank(0);
      Buffer value = rank.comm().newBuffer(DataType.INT32, 1 << 20);
      rank.comm().allReduce(value, value, ReduceOp.MAX, rank.stream());
      CompletableFuture<Void> closed =
          rank.stream().completion().thenRun(value::close).toCompletableFuture();
      closed.get(LIMIT.toSeconds(), TimeUnit.SECONDS);
    }
  }

  @Test
  void buffersOfIdleStreamCanBeClosed() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      Rank rank = ranks.rank(0);
      Buffer value = rank.ints(1, 2, 3);
      Buffer moved = rank.comm().newBuffer(DataType.INT32, 3);
      rank.comm().allReduce(value, moved, ReduceOp.SUM, rank.stream());
      assertArrayEquals(new int[] {1, 2, 3}, rank.downloadInts(moved));
      assertDoesNotThrow(moved::close);
    }
  }

  @Test
  void closeWaitsForPendingCopy() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      Rank rank = ranks.rank(0);
      Buffer value = rank.comm().newBuffer(DataType.INT32, 1 << 20);
      Buffer copy = rank.allocate(DataType.INT32, 1 << 20);
      value.fill((byte) 1, rank.stream());
      copy.copyFromAsync(value, rank.stream());
      assertDoesNotThrow(value::close);
      assertEquals(0x01010101, rank.downloadInts(copy)[(1 << 20) - 1]);
    }
  }

  @Test
  void closingStreamInUseThrowsAndCommunicatorReleasesIt() {
    try (StuckCollective stuck = StuckCollective.start(underTest())) {
      Communicator comm = stuck.comm();
      Stream closing = comm.newStream();
      Buffer value = comm.newBuffer(DataType.INT32, 4);
      comm.allReduce(value, value, ReduceOp.SUM, closing);
      IllegalStateException refusal =
          assertThrows(IllegalStateException.class, closing::close, "close does not wait");
      assertTrue(refusal.getMessage().contains(closing.toString()), refusal.getMessage());
      assertTrue(refusal.getMessage().contains(comm.toString()), refusal.getMessage());
      assertFalse(closing.isOpen());
      closing.close();
      assertThrows(
          IllegalStateException.class,
          () -> comm.allReduce(value, value, ReduceOp.SUM, closing),
          "the stream is still closed");
      stuck.join();
      stuck.join();
      stuck.stream().synchronize(LIMIT);
      Thread peer = Thread.ofPlatform().start(stuck.absent().comm()::close);
      comm.close();
      assertDoesNotThrow(value::close);
      assertDoesNotThrow(() -> peer.join(LIMIT));
      assertFalse(comm.isAborted());
    }
  }

  @Test
  void closingStreamUsesItsBuffersUntilItsWorkCompletes() throws Exception {
    try (StuckCollective stuck = StuckCollective.start(underTest());
        Event stuckEvent = stuck.comm().newEvent()) {
      Stream closing = stuck.comm().newStream();
      Buffer value = stuck.comm().newBuffer(DataType.INT32, 4);
      stuck.stream().record(stuckEvent);
      closing.waitFor(stuckEvent);
      value.fill((byte) 1, closing);
      Thread thread = Thread.ofPlatform().daemon().start(closing::close);
      long end = System.nanoTime() + LIMIT.toNanos();
      while (closing.isOpen() && System.nanoTime() < end) {
        Thread.onSpinWait();
      }
      assertFalse(closing.isOpen());
      assertCloseThrows(value::close, closing);
      stuck.ranks().abort();
      assertTrue(thread.join(LIMIT));
    }
  }

  @Test
  void rerecordedEventDoesNotCompleteFirstStream() throws Exception {
    try (StuckCollective stuck = StuckCollective.start(underTest());
        Event event = stuck.comm().newEvent();
        Stream idle = stuck.comm().newStream()) {
      stuck.join();
      AtomicBoolean done = new AtomicBoolean();
      CompletableFuture<Void> polling =
          CompletableFuture.runAsync(
              () -> {
                while (!done.get()) {
                  event.isComplete();
                }
              });
      try {
        for (int round = 0; round < 20; round++) {
          Buffer value = stuck.comm().newBuffer(DataType.INT32, 4);
          stuck.comm().allReduce(value, value, ReduceOp.SUM, stuck.stream());
          // Not more: a device blocks its callers once its queue is full.
          for (int i = 0; i < 200; i++) {
            stuck.stream().record(event);
            idle.record(event);
          }
          assertCloseThrows(value::close, stuck.stream());
          stuck.join();
        }
      } finally {
        done.set(true);
      }
      polling.get(LIMIT.toSeconds(), TimeUnit.SECONDS);
    }
  }

  private static void assertCloseThrows(Runnable close, Stream stream) {
    long start = System.nanoTime();
    IllegalStateException refusal = assertThrows(IllegalStateException.class, close::run);
    assertTrue(refusal.getMessage().contains(stream.toString()), refusal.getMessage());
    assertTrue(System.nanoTime() - start < TimeUnit.SECONDS.toNanos(10), "close does not wait");
  }
}
