package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.NcclException;
import io.nccl4j.NcclResult;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.fixtures.LogLines;
import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.StandIn;
import io.nccl4j.nccl.NcclCommunicator;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

/**
 * Tests that a blocked call ends. The first operations of a blocking communicator connect inside
 * the call, where NCCL waits for the peers without a deadline. nccl4j ends such a call when the
 * timeout expires, or with an abort.
 */
@OnStandIn
class BlockedCallTest {
  private static final Duration TIMEOUT = Duration.ofMillis(600);

  /** For tests that do something before the timeout, for which a busy machine may need seconds. */
  private static final Duration SECONDS = Duration.ofSeconds(5);

  private static final long SOON_SECONDS = 20;
  private static final CommunicatorConfig LONG_TIMEOUT =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(60));
  private static final CommunicatorConfig CONFIG = LONG_TIMEOUT.withTimeout(TIMEOUT);
  private static final CommunicatorConfig SECONDS_TIMEOUT = LONG_TIMEOUT.withTimeout(SECONDS);

  @RegisterExtension private final CommunicatorCount communicators = new CommunicatorCount();

  @BeforeEach
  void reset() {
    StandIn.reset();
  }

  /** A call in its own thread, and its result. */
  private static final class Call {
    private final CompletableFuture<Throwable> end = new CompletableFuture<>();
    private final Thread thread;

    Call(Runnable call) {
      thread = Thread.ofPlatform().daemon().start(() -> end.complete(thrown(call)));
    }

    private static Throwable thrown(Runnable call) {
      try {
        call.run();
        return null;
      } catch (RuntimeException | Error failure) {
        return failure;
      }
    }

    /** Waits for the end of the call; returns its exception, or null if it returned normally. */
    Throwable failure() {
      try {
        return end.get(SOON_SECONDS, TimeUnit.SECONDS);
      } catch (TimeoutException e) {
        throw new AssertionError("the call does not end", e);
      } catch (InterruptedException | ExecutionException e) {
        throw new AssertionError(e);
      }
    }

    /** Waits until the call has been blocked inside NCCL for 50 ms. */
    Call blocked(String function, long calls) {
      await(() -> StandIn.calls(function) == calls);
      LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(50));
      assertFalse(end.isDone(), "the call is blocked");
      return this;
    }
  }

  @Test
  void firstCollectiveWithoutPeer_timesOut() {
    try (Pair pair = new Pair(CONFIG);
        Buffer value = pair.rank(0).newBuffer(DataType.INT32, 4)) {
      Communicator comm = pair.rank(0);
      long start = System.nanoTime();
      Throwable failure = new Call(() -> sum(comm, value, pair.stream(0))).failure();
      assertTrue(System.nanoTime() - start >= TIMEOUT.toNanos(), "it timed out early");
      assertTimedOut(failure, "ncclAllReduce", comm);
      assertTrue(comm.isAborted());
      assertFalse(comm.isOpen());
      assertEquals(1, StandIn.calls("ncclCommRevoke"));
      await(() -> communicators.live() == 1);
      assertThrows(IllegalStateException.class, () -> sum(comm, value, pair.stream(0)));
      assertThrows(CommunicatorAbortedException.class, pair.stream(0)::synchronize);
      pair.abort();
    }
  }

  @Test
  void firstSendWithoutReceive_timesOut() {
    try (Pair pair = new Pair(CONFIG);
        Buffer value = pair.rank(0).newBuffer(DataType.INT32, 4)) {
      Communicator comm = pair.rank(0);
      Call send = new Call(() -> comm.send(value, 1, pair.stream(0)));
      assertTimedOut(send.failure(), "ncclSend", comm);
      await(() -> communicators.live() == 1);
      assertThrows(CommunicatorAbortedException.class, pair.stream(0)::synchronize);
      pair.abort();
    }
  }

  @Test
  void overdueCall_namesCommunicatorAndSequenceNumber() {
    try (Pair pair = new Pair(CONFIG);
        Buffer value = pair.rank(0).newBuffer(DataType.INT32, 4)) {
      Communicator comm = pair.rank(0);
      Throwable failure = new Call(() -> sum(comm, value, pair.stream(0))).failure();
      assertTrue(failure.getMessage().contains("collective 1 of " + comm), failure::toString);
      pair.abort();
    }
  }

  @Test
  void overdueWait_namesCommunicatorAndSequenceNumber() {
    StandIn.connect(false);
    try (Pair pair = new Pair(CONFIG);
        Buffer value = pair.rank(0).newBuffer(DataType.INT32, 4)) {
      Communicator comm = pair.rank(0);
      sum(comm, value, pair.stream(0));
      sum(comm, value, pair.stream(0));
      NcclTimeoutException failure =
          assertThrows(
              NcclTimeoutException.class, () -> pair.stream(0).synchronize(Duration.ofMillis(50)));
      assertTrue(failure.getMessage().contains("collective 2 of " + comm), failure::toString);
      pair.abort();
    }
  }

  @Test
  void groupOfTwoCommunicators_timesOutAndAbortsBoth() {
    try (Pair pair = new Pair(CONFIG);
        Stream stream = pair.backend().newStream(0);
        Buffer value = pair.rank(0).newBuffer(DataType.INT32, 4);
        Buffer other = pair.rank(0).newBuffer(DataType.INT32, 4)) {
      List<Communicator> longTimeout =
          pair.backend().newCommunicators(new int[] {0, 1}, LONG_TIMEOUT);
      Runnable both =
          () ->
              Group.run(
                  () -> {
                    sum(longTimeout.get(0), other, stream);
                    sum(pair.rank(0), value, pair.stream(0));
                  });
      Throwable failure = new Call(both).failure();
      assertTimedOut(failure, "ncclGroupEnd", pair.rank(0));
      assertEquals(0, failure.getSuppressed().length);
      assertTrue(pair.rank(0).isAborted());
      assertTrue(longTimeout.get(0).isAborted(), "NCCL ended its connection set-up too");
      await(() -> communicators.live() == 2);
      assertThrows(CommunicatorAbortedException.class, pair.stream(0)::synchronize);
      assertThrows(CommunicatorAbortedException.class, stream::synchronize);
      pair.abort();
      longTimeout.forEach(Communicator::abort);
    }
  }

  @Test
  void capturedFirstCollectiveWithoutPeer_timesOut() {
    try (Pair pair = new Pair(CONFIG);
        Buffer value = pair.rank(0).newBuffer(DataType.INT32, 4)) {
      Communicator comm = pair.rank(0);
      Stream stream = pair.stream(0);
      long graphs = StandIn.live("graph");
      Call capture = new Call(() -> Graph.capture(List.of(stream), () -> sum(comm, value, stream)));
      assertTimedOut(capture.failure(), "ncclAllReduce", comm);
      await(() -> communicators.live() == 1);
      assertEquals(graphs, StandIn.live("graph"));
      assertThrows(CommunicatorAbortedException.class, stream::synchronize);
      value.fill((byte) 0, stream);
      stream.synchronize();
      pair.abort();
    }
  }

  @Test
  void capturedSendAfterCollective_timesOut() {
    try (Pair pair = new Pair(SECONDS_TIMEOUT)) {
      List<Buffer> values = pair.registrable(DataType.INT32, 4);
      Communicator comm = pair.rank(0);
      Stream stream = pair.stream(0);
      Group.run(
          () -> {
            sum(comm, values.get(0), stream);
            sum(pair.rank(1), values.get(1), pair.stream(1));
          });
      pair.stream(1).synchronize();
      stream.synchronize();
      long graphs = StandIn.live("graph");
      Runnable body =
          () -> {
            sum(comm, values.get(0), stream);
            comm.send(values.get(0), 1, stream);
          };
      Call capture = new Call(() -> Graph.capture(List.of(stream), body));
      assertTimedOut(capture.failure(), "ncclSend", comm, SECONDS);
      await(() -> communicators.live() == 1);
      assertEquals(graphs, StandIn.live("graph"));
      assertThrows(CommunicatorAbortedException.class, stream::synchronize);
      pair.abort();
      values.forEach(Buffer::close);
    }
  }

  @Test
  void interruptedCaller_waitsForTheTimeout() {
    try (Pair pair = new Pair(SECONDS_TIMEOUT);
        Buffer value = pair.rank(0).newBuffer(DataType.INT32, 4)) {
      Communicator comm = pair.rank(0);
      boolean[] interrupted = new boolean[1];
      Runnable sum =
          () -> {
            try {
              sum(comm, value, pair.stream(0));
            } finally {
              interrupted[0] = Thread.interrupted();
            }
          };
      Call call = new Call(sum).blocked("ncclAllReduce", 1);
      call.thread.interrupt();
      assertTimedOut(call.failure(), "ncclAllReduce", comm, SECONDS);
      assertTrue(interrupted[0]);
      await(() -> communicators.live() == 1);
      assertThrows(CommunicatorAbortedException.class, pair.stream(0)::synchronize);
      pair.abort();
    }
  }

  @Test
  void abort_endsTheCallOfAnotherThread() {
    try (Pair pair = new Pair(LONG_TIMEOUT);
        Buffer value = pair.rank(0).newBuffer(DataType.INT32, 4)) {
      Communicator comm = pair.rank(0);
      Call call = new Call(() -> sum(comm, value, pair.stream(0))).blocked("ncclAllReduce", 1);
      comm.abort();
      CommunicatorAbortedException failure = (CommunicatorAbortedException) call.failure();
      assertEquals("ncclAllReduce", failure.function());
      assertEquals(comm.toString(), failure.communicator());
      await(() -> communicators.live() == 1);
      assertThrows(CommunicatorAbortedException.class, pair.stream(0)::synchronize);
      pair.abort();
    }
  }

  @Test
  void callThatMissesTheRevoke_isReportedAndFreesLater() {
    StandIn.pitfall(16);
    try (Pair pair = new Pair(LONG_TIMEOUT);
        Buffer value = pair.rank(0).newBuffer(DataType.INT32, 4);
        LogLines log = new LogLines(NcclCommunicator.class)) {
      Communicator comm = pair.rank(0);
      Call call = new Call(() -> sum(comm, value, pair.stream(0))).blocked("ncclAllReduce", 1);
      comm.abort();
      assertEquals(
          List.of(
              comm
                  + ": ncclAllReduce has not returned although NCCL has ended the operations; unless"
                  + " it returns, its thread and the communicator are leaked"),
          log.lines());
      assertFalse(call.end.isDone());
      assertEquals(2, communicators.live(), "it is in use");
      assertEquals(0, StandIn.calls("ncclCommAbort"));
      StandIn.reset(); // The thread looks again.
      assertTrue(call.failure() instanceof CommunicatorAbortedException);
      await(() -> communicators.live() == 1);
      assertThrows(CommunicatorAbortedException.class, pair.stream(0)::synchronize);
      pair.abort();
    }
  }

  @Test
  void refusedRevoke_letsTheCallEndAndThenFrees() {
    try (Pair pair = new Pair(LONG_TIMEOUT);
        Buffer value = pair.rank(0).newBuffer(DataType.INT32, 4);
        Buffer other = pair.rank(1).newBuffer(DataType.INT32, 4)) {
      Communicator comm = pair.rank(0);
      Call call = new Call(() -> sum(comm, value, pair.stream(0))).blocked("ncclAllReduce", 1);
      StandIn.fail("ncclCommRevoke", NcclResult.INVALID_ARGUMENT.code(), 1);
      comm.abort();
      assertFalse(call.end.isDone());
      assertEquals(2, communicators.live(), "it is in use");
      sum(pair.rank(1), other, pair.stream(1));
      assertNull(call.failure());
      await(() -> communicators.live() == 1);
      assertThrows(CommunicatorAbortedException.class, pair.stream(0)::synchronize);
      pair.abort();
      assertThrows(CommunicatorAbortedException.class, pair.stream(1)::synchronize);
    }
  }

  @Test
  void manyShortCalls_doNotTimeOut() {
    try (Pair pair = new Pair(SECONDS_TIMEOUT)) {
      List<Buffer> values = new ArrayList<>();
      for (int rank = 0; rank < 2; rank++) {
        Buffer value = pair.rank(rank).newBuffer(DataType.INT32, 1);
        value.copyFromAsync(MemorySegment.ofArray(new int[] {1}), pair.stream(rank));
        values.add(value);
      }
      long start = System.nanoTime();
      while (System.nanoTime() - start < SECONDS.plusSeconds(2).toNanos()) {
        Group.run(
            () -> {
              for (int rank = 0; rank < 2; rank++) {
                Buffer value = values.get(rank);
                pair.rank(rank).allReduce(value, value, ReduceOp.MAX, pair.stream(rank));
              }
            });
        pair.stream(0).synchronize();
        pair.stream(1).synchronize();
      }
      assertEquals(1, pair.download(0, values.getFirst())[0]);
      assertEquals(0, StandIn.calls("ncclCommRevoke"));
      values.forEach(Buffer::close);
    }
  }

  @Test
  void secondThread_isRefusedWithHintToAbort() {
    try (Pair pair = new Pair(LONG_TIMEOUT);
        Buffer value = pair.rank(0).newBuffer(DataType.INT32, 4)) {
      Communicator comm = pair.rank(0);
      Call call = new Call(() -> sum(comm, value, pair.stream(0))).blocked("ncclAllReduce", 1);
      IllegalStateException refused =
          assertThrows(IllegalStateException.class, () -> sum(comm, value, pair.stream(0)));
      assertEquals(
          comm
              + " is in use by another thread, in ncclAllReduce; one thread at a time may use a"
              + " communicator, and abort ends its call",
          refused.getMessage());
      comm.abort();
      assertTrue(call.failure() instanceof CommunicatorAbortedException);
      await(() -> communicators.live() == 1);
      assertThrows(CommunicatorAbortedException.class, pair.stream(0)::synchronize);
      pair.abort();
    }
  }

  private static void assertTimedOut(Throwable failure, String function, Communicator comm) {
    assertTimedOut(failure, function, comm, TIMEOUT);
  }

  private static void assertTimedOut(
      Throwable failure, String function, Communicator comm, Duration after) {
    assertTrue(failure instanceof NcclTimeoutException, () -> String.valueOf(failure));
    NcclException timeout = (NcclException) failure;
    assertEquals(function, timeout.function());
    String expected = after.toMillis() / 1000.0 + " s: the peers of " + comm;
    assertTrue(timeout.getMessage().contains(expected), timeout::toString);
  }

  private static void sum(Communicator comm, Buffer value, Stream stream) {
    comm.allReduce(value, value, ReduceOp.SUM, stream);
  }

  private static void await(BooleanSupplier condition) {
    long start = System.nanoTime();
    while (!condition.getAsBoolean()) {
      assertTrue(
          System.nanoTime() - start < TimeUnit.SECONDS.toNanos(SOON_SECONDS),
          "the condition did not become true");
      LockSupport.parkNanos(1_000_000);
    }
  }
}
