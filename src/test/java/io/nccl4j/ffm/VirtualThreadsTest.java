package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Event;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.cuda.CudaDevices;
import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.StandIn;
import io.nccl4j.nccl.NcclBackend;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/**
 * Tests that virtual threads may close and abort, and are refused elsewhere: CUDA's current device
 * and NCCL's group depth belong to an operating system thread, and a virtual thread can move from
 * one to another.
 */
@OnStandIn
class VirtualThreadsTest {
  /** Less than the timeout of the ranks that are aborted. */
  private static final Duration SOON = Duration.ofSeconds(20);

  private static final Duration TIMEOUT = Duration.ofSeconds(40);

  @BeforeEach
  void reset() {
    StandIn.reset();
  }

  @Test
  void operationsStreamsAndDevicesRefuseVirtualThreads() throws Exception {
    try (Pair pair = new Pair(CommunicatorConfig.defaults());
        Buffer value = pair.rank(0).newBuffer(DataType.INT32, 1);
        Buffer other = pair.rank(0).newBuffer(DataType.INT32, 1)) {
      Stream stream = pair.stream(0);
      long launched = StandIn.calls("ncclAllReduce");
      refused("ncclAllReduce", () -> pair.rank(0).allReduce(value, value, ReduceOp.SUM, stream));
      refused(
          "ncclGroupEnd",
          () ->
              Group.run(
                  () -> {
                    pair.rank(0).allReduce(value, value, ReduceOp.SUM, stream);
                    pair.rank(0).allReduce(other, other, ReduceOp.SUM, stream);
                  }));
      refused("cudaGetDevice", stream::isComplete);
      refused("cudaGetDevice", stream::synchronize);
      refused("cudaGetDevice", () -> value.fill((byte) 1, stream));
      refused("cudaSetDevice", () -> CudaDevices.use(0));
      assertEquals(launched, StandIn.calls("ncclAllReduce"));
    }
  }

  @Test
  void repeatedCallIsRefusedOnVirtualThread() throws Exception {
    try (Pair pair = new Pair(CommunicatorConfig.defaults());
        Buffer first = pair.rank(0).newBuffer(DataType.INT32, 1);
        Buffer second = pair.rank(1).newBuffer(DataType.INT32, 1)) {
      StandIn.connect(false); // The ranks call one after the other.
      for (int i = 0; i < 5; i++) {
        pair.rank(0).allReduce(first, first, ReduceOp.SUM, pair.stream(0));
        Pair.onOwnThread(
            () -> pair.rank(1).allReduce(second, second, ReduceOp.SUM, pair.stream(1)));
      }
      refused(
          "ncclAllReduce",
          () -> pair.rank(0).allReduce(first, first, ReduceOp.SUM, pair.stream(0)));
      pair.rank(0).allReduce(first, first, ReduceOp.SUM, pair.stream(0));
      Pair.onOwnThread(() -> pair.rank(1).allReduce(second, second, ReduceOp.SUM, pair.stream(1)));
      pair.stream(0).synchronize();
      pair.stream(1).synchronize();
    }
  }

  @Test
  void communicatorClosedOnVirtualThreadIsNotAborted() throws Exception {
    long communicators = StandIn.live("communicator");
    Pair pair = new Pair(CommunicatorConfig.defaults());
    List<Buffer> values = pair.registrable(DataType.INT32, 1);
    sumTogether(pair, values);
    onVirtualThread(pair.rank(0)::close);
    onVirtualThread(pair.rank(1)::close);
    assertFalse(pair.rank(0).isAborted());
    assertFalse(pair.rank(1).isAborted());
    assertEquals(0, StandIn.calls("ncclCommAbort"));
    assertEquals(2, StandIn.calls("ncclCommDestroy"));
    assertEquals(communicators, StandIn.live("communicator"));
    values.forEach(Buffer::close);
    pair.close();
  }

  @Test
  void streamClosedOnVirtualThreadFreesStagingMemory() throws Exception {
    long streams = StandIn.live("stream");
    long events = StandIn.live("event");
    long pinned = StandIn.live("pinned");
    try (Backend backend = NcclBackend.open();
        Buffer value = backend.newBuffer(0, DataType.INT32, 1)) {
      Stream stream = backend.newStream(0);
      value.copyFromAsync(MemorySegment.ofArray(new int[] {7}), stream);
      assertEquals(streams + 1, StandIn.live("stream"));
      onVirtualThread(stream::close);
      assertFalse(stream.isOpen());
      assertEquals(streams, StandIn.live("stream"));
      assertEquals(events, StandIn.live("event"));
      assertEquals(pinned, StandIn.live("pinned"));
    }
  }

  @Test
  void streamClosedOnVirtualThreadChecksForPendingWork() throws Exception {
    long streams = StandIn.live("stream");
    Pair pair = new Pair(CommunicatorConfig.defaults());
    List<Buffer> values = pair.registrable(DataType.INT32, 1);
    sumTogether(pair, values);
    // No wait has seen this complete, so the close queries the stream.
    values.get(0).fill((byte) 1, pair.stream(0));
    onVirtualThread(pair.stream(0)::close);
    assertEquals(streams + 1, StandIn.live("stream"));
    values.forEach(Buffer::close);
    pair.close();
    assertEquals(streams, StandIn.live("stream"));
  }

  @Test
  void streamWithPendingWorkRefusesCloseOnVirtualThread() throws Exception {
    long streams = StandIn.live("stream");
    Pair pair = new Pair(CommunicatorConfig.defaults());
    List<Buffer> values = pair.registrable(DataType.INT32, 1);
    sumTogether(pair, values);
    Buffer value = values.get(0);
    pair.rank(0).allReduce(value, value, ReduceOp.SUM, pair.stream(0));
    RuntimeException refusal = failureOnVirtualThread(pair.stream(0)::close);
    assertEquals(IllegalStateException.class, refusal == null ? null : refusal.getClass());
    assertTrue(refusal.getMessage().contains("is pending on it"), refusal.getMessage());
    assertEquals(streams + 2, StandIn.live("stream"));
    Buffer other = values.get(1);
    Pair.onOwnThread(() -> pair.rank(1).allReduce(other, other, ReduceOp.SUM, pair.stream(1)));
    onVirtualThread(pair.rank(0)::close);
    assertEquals(streams + 1, StandIn.live("stream"));
    pair.close();
    values.forEach(Buffer::close);
    assertEquals(streams, StandIn.live("stream"));
  }

  @Test
  void interruptedVirtualThreadClosesAndStaysInterrupted() throws Exception {
    long streams = StandIn.live("stream");
    try (Backend backend = NcclBackend.open();
        Buffer value = backend.newBuffer(0, DataType.INT32, 1)) {
      Stream stream = backend.newStream(0);
      value.fill((byte) 1, stream);
      onVirtualThread(
          () -> {
            Thread.currentThread().interrupt();
            stream.close();
            assertTrue(Thread.currentThread().isInterrupted(), "the interrupt is kept");
          });
      assertEquals(streams, StandIn.live("stream"));
    }
  }

  @Test
  void eventClosedOnVirtualThreadIsDestroyed() throws Exception {
    long events = StandIn.live("event");
    try (Backend backend = NcclBackend.open()) {
      Event event = backend.newEvent(1);
      onVirtualThread(event::close);
      assertFalse(event.isOpen());
      assertEquals(events, StandIn.live("event"));
    }
  }

  @Test
  void graphClosedOnVirtualThreadIsDestroyed() throws Exception {
    long graphs = StandIn.live("graph");
    try (Backend backend = NcclBackend.open();
        Stream stream = backend.newStream(1)) {
      Graph graph = Graph.capture(List.of(stream), () -> {}).getFirst();
      assertEquals(graphs + 1, StandIn.live("graph"));
      onVirtualThread(graph::close);
      assertEquals(graphs, StandIn.live("graph"));
    }
  }

  @Test
  void bufferClosedOnVirtualThreadWaitsForItsFill() throws Exception {
    long memory = StandIn.live("memory");
    try (Backend backend = NcclBackend.open();
        Stream stream = backend.newStream(1)) {
      Buffer value = backend.newBuffer(1, DataType.INT32, 4);
      value.fill((byte) 1, stream);
      onVirtualThread(value::close);
      assertEquals(memory, StandIn.live("memory"));
    }
  }

  @Test
  void pinnedMemoryIsAllocatedAndFreedOnVirtualThread() throws Exception {
    long pinned = StandIn.live("pinned");
    try (Backend backend = NcclBackend.open()) {
      Buffer[] made = new Buffer[1];
      onVirtualThread(() -> made[0] = backend.newPinnedBuffer(DataType.INT32, 16));
      assertEquals(64, made[0].segment().byteSize());
      assertEquals(pinned + 1, StandIn.live("pinned"));
      onVirtualThread(made[0]::close);
      assertEquals(pinned, StandIn.live("pinned"));
    }
  }

  @Test
  void reductionOpClosedOnVirtualThreadIsDestroyed() throws Exception {
    try (Pair pair = new Pair(CommunicatorConfig.defaults())) {
      long ops = StandIn.live("redop");
      ReduceOp.PreMulSum op = pair.rank(0).newPreMulSum(DataType.INT32, 3);
      assertEquals(ops + 1, StandIn.live("redop"));
      onVirtualThread(op::close);
      assertEquals(ops, StandIn.live("redop"));
    }
  }

  @Test
  void abortOnVirtualThreadDestroysGraphsAndFreesAll() throws Exception {
    long communicators = StandIn.live("communicator");
    long graphs = StandIn.live("graph");
    Pair pair = new Pair(CommunicatorConfig.defaults().withTimeout(TIMEOUT));
    List<Buffer> values = pair.registrable(DataType.INT32, 1);
    sumTogether(pair, values);
    Graph first = captured(pair, values.get(0));
    Graph second = captured(pair, values.get(0));
    first.launch(pair.stream(0));
    assertEquals(graphs + 2, StandIn.live("graph"));
    long start = System.nanoTime();
    onVirtualThread(pair.rank(0)::abort);
    Duration taken = Duration.ofNanos(System.nanoTime() - start);
    assertTrue(taken.compareTo(SOON) < 0, () -> "took " + taken);
    assertEquals(graphs, StandIn.live("graph"));
    onVirtualThread(pair.rank(1)::abort);
    assertEquals(communicators, StandIn.live("communicator"));
    first.close();
    second.close();
    values.forEach(Buffer::close);
    pair.close();
  }

  private static Graph captured(Pair pair, Buffer value) {
    Stream stream = pair.stream(0);
    Runnable sum = () -> pair.rank(0).allReduce(value, value, ReduceOp.SUM, stream);
    return Graph.capture(List.of(stream), sum).getFirst();
  }

  /** Runs a collective that connects the ranks, so that a later capture does not. */
  private static void sumTogether(Pair pair, List<Buffer> values) {
    Group.run(
        () -> {
          for (int r = 0; r < 2; r++) {
            Buffer value = values.get(r);
            pair.rank(r).allReduce(value, value, ReduceOp.SUM, pair.stream(r));
          }
        });
    pair.stream(0).synchronize();
    pair.stream(1).synchronize();
  }

  private static void onVirtualThread(Runnable call) throws Exception {
    RuntimeException failure = failureOnVirtualThread(call);
    if (failure != null) {
      throw failure;
    }
  }

  private static void refused(String function, Runnable call) throws Exception {
    RuntimeException refusal = failureOnVirtualThread(call);
    assertEquals(
        IllegalStateException.class, refusal == null ? null : refusal.getClass(), function);
    assertTrue(refusal.getMessage().contains(function), refusal.getMessage());
    assertTrue(refusal.getMessage().contains("platform thread"), refusal.getMessage());
  }

  /** Returns what a call throws on a virtual thread, or null. */
  private static RuntimeException failureOnVirtualThread(Runnable call) throws Exception {
    CompletableFuture<RuntimeException> answer = new CompletableFuture<>();
    Thread.ofVirtual()
        .start(
            () -> {
              try {
                call.run();
                answer.complete(null);
              } catch (RuntimeException failure) {
                answer.complete(failure);
              } catch (Error failure) {
                answer.completeExceptionally(failure);
                throw failure;
              }
            });
    return answer.get(2 * TIMEOUT.toSeconds(), TimeUnit.SECONDS);
  }
}
