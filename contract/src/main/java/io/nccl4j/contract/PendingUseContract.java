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

/** Closing what pending work uses is refused at once; closing what is known to be done is not. */
abstract class PendingUseContract {
  private static final Duration SOON = Duration.ofSeconds(20);

  abstract BackendUnderTest underTest();

  @Test
  void closingBufferInUseThrowsAndKeepsItsMemory() {
    try (StuckCollective stuck = StuckCollective.start(underTest())) {
      Buffer send = stuck.comm().newBuffer(DataType.INT32, 4);
      Buffer recv = stuck.comm().newBuffer(DataType.INT32, 4);
      stuck.comm().allReduce(send, recv, ReduceOp.SUM, stuck.stream());
      refused(send::close, stuck.stream());
      refused(recv::close, stuck.stream());
      send.close();
      assertThrows(IllegalStateException.class, send::address, "closed all the same");
      stuck.join();
      stuck.join();
      stuck.stream().synchronize(SOON);
    }
  }

  @Test
  void bufferOfPendingSliceIsNotClosed() {
    try (StuckCollective stuck = StuckCollective.start(underTest())) {
      Buffer whole = stuck.comm().newBuffer(DataType.INT32, 8);
      Buffer part = whole.slice(4, 4);
      stuck.comm().allReduce(part, part, ReduceOp.SUM, stuck.stream());
      part.close();
      refused(whole::close, stuck.stream());
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
        refused(buffer::close, stuck.stream());
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
      refused(value::close, stuck.stream());
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
          Event passed = rank.comm().newEvent();
          Event never = rank.comm().newEvent()) {
        early.fill((byte) 1, stream);
        stream.record(passed);
        stuck.stream().record(never);
        stream.waitFor(never);
        late.fill((byte) 1, stream);
        passed.synchronize(SOON);
        assertDoesNotThrow(early::close);
        refused(late::close, stream);
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
          Event handOver = rank.comm().newEvent();
          Event never = rank.comm().newEvent()) {
        value.fill((byte) 1, first);
        first.record(handOver);
        stuck.stream().record(never);
        first.waitFor(never);
        other.fill((byte) 1, first);
        second.waitFor(handOver);
        second.synchronize(SOON);
        assertDoesNotThrow(value::close);
        refused(other::close, first);
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
      closed.get(SOON.toSeconds(), TimeUnit.SECONDS);
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
          assertThrows(IllegalStateException.class, closing::close, "not waited for");
      assertTrue(refusal.getMessage().contains(closing.toString()), refusal.getMessage());
      assertTrue(refusal.getMessage().contains(comm.toString()), refusal.getMessage());
      assertFalse(closing.isOpen());
      closing.close();
      assertThrows(
          IllegalStateException.class,
          () -> comm.allReduce(value, value, ReduceOp.SUM, closing),
          "closed all the same");
      stuck.join();
      stuck.join();
      stuck.stream().synchronize(SOON);
      Thread peer = Thread.ofPlatform().start(stuck.absent().comm()::close);
      comm.close();
      assertDoesNotThrow(value::close);
      assertDoesNotThrow(() -> peer.join(SOON));
      assertFalse(comm.isAborted());
    }
  }

  @Test
  void closingStreamUsesItsBuffersUntilItsWorkCompletes() throws Exception {
    try (StuckCollective stuck = StuckCollective.start(underTest());
        Event never = stuck.comm().newEvent()) {
      Stream copying = stuck.comm().newStream();
      Buffer value = stuck.comm().newBuffer(DataType.INT32, 4);
      stuck.stream().record(never);
      copying.waitFor(never);
      value.fill((byte) 1, copying);
      Thread closer = Thread.ofPlatform().daemon().start(copying::close);
      long end = System.nanoTime() + SOON.toNanos();
      while (copying.isOpen() && System.nanoTime() < end) {
        Thread.onSpinWait();
      }
      assertFalse(copying.isOpen());
      refused(value::close, copying);
      stuck.ranks().abort();
      assertTrue(closer.join(SOON));
    }
  }

  @Test
  void rerecordedEventDoesNotCompleteFirstStream() throws Exception {
    try (StuckCollective stuck = StuckCollective.start(underTest());
        Event moving = stuck.comm().newEvent();
        Stream idle = stuck.comm().newStream()) {
      stuck.join();
      AtomicBoolean done = new AtomicBoolean();
      CompletableFuture<Void> asking =
          CompletableFuture.runAsync(
              () -> {
                while (!done.get()) {
                  moving.isComplete();
                }
              });
      try {
        for (int round = 0; round < 20; round++) {
          Buffer value = stuck.comm().newBuffer(DataType.INT32, 4);
          stuck.comm().allReduce(value, value, ReduceOp.SUM, stuck.stream());
          // Not more, since a device takes only so much work before it makes its callers wait.
          for (int i = 0; i < 200; i++) {
            stuck.stream().record(moving);
            idle.record(moving);
          }
          refused(value::close, stuck.stream());
          stuck.join();
        }
      } finally {
        done.set(true);
      }
      asking.get(SOON.toSeconds(), TimeUnit.SECONDS);
    }
  }

  private static void refused(Runnable close, Stream stream) {
    long start = System.nanoTime();
    IllegalStateException refusal = assertThrows(IllegalStateException.class, close::run);
    assertTrue(refusal.getMessage().contains(stream.toString()), refusal.getMessage());
    assertTrue(System.nanoTime() - start < TimeUnit.SECONDS.toNanos(10), "refused, not waited for");
  }
}
