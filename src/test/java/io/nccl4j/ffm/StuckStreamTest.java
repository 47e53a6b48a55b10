package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Buffer;
import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.CudaException;
import io.nccl4j.DataType;
import io.nccl4j.Event;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.cuda.CudaStream;
import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.StandIn;
import java.lang.foreign.MemorySegment;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * Tests that a thread that waits behind a kernel that does not end delays no other thread, and that
 * an abort ends its wait: for staging memory, and in a launch on a full queue.
 */
@OnStandIn
class StuckStreamTest {
  private static final int COUNT = 1000;
  private static final long SOON_SECONDS = 20;
  private static final int LAUNCH_FAILURE = 719;

  /** A call that blocks while the queue of its stream is full. */
  enum Launch {
    FILL("cudaMemsetAsync"),
    UPLOAD("cudaMemcpyAsync"),
    RECORD("cudaEventRecord"),
    COMPLETION("cudaLaunchHostFunc"),
    ALL_REDUCE("ncclAllReduce");

    private final String function;

    Launch(String function) {
      this.function = function;
    }
  }

  private final Pair pair;
  private final Stream stuck;
  private final Event event;
  private final Buffer reduced;
  private final Buffer buffer;

  StuckStreamTest() {
    StandIn.reset();
    StandIn.connect(false); // A collective of one rank blocks in its stream, not in its call.
    pair = new Pair(CommunicatorConfig.defaults());
    stuck = pair.stream(0);
    event = pair.rank(0).newEvent();
    reduced = pair.rank(0).newBuffer(DataType.INT32, COUNT);
    buffer = pair.rank(0).newBuffer(DataType.INT32, COUNT);
    pair.rank(0).allReduce(reduced, reduced, ReduceOp.SUM, stuck);
  }

  @AfterEach
  void close() {
    StandIn.reset();
    pair.abort();
    pair.close();
    List.of(reduced, buffer).forEach(Buffer::close);
    event.close();
  }

  @Test
  void uploadWaitingForItsTurnIsInterruptible() {
    Call first = start(this::uploadThreeTimes);
    await(() -> StandIn.calls("cudaEventQuery") > 1);
    Call second = start(this::upload);
    second.thread.interrupt();
    assertInstanceOf(CancellationException.class, second.failure());
    assertFalse(first.end.isDone());
  }

  @Test
  void abortEndsUploadsThatWaitForStagingMemory() {
    Call first = start(this::uploadThreeTimes);
    await(() -> StandIn.calls("cudaEventQuery") > 1);
    Call second = start(this::upload);
    pair.rank(0).abort();
    for (Call call : List.of(first, second)) {
      // The device may complete the copies before the thread notices the abort.
      Throwable failure = call.failure();
      assertTrue(
          failure == null || failure instanceof CommunicatorAbortedException, () -> "" + failure);
    }
  }

  @Test
  void eventsOfStagedCopiesMeasureNoTime() {
    long events = StandIn.live("event");
    long timing = StandIn.live("timing event");
    upload();
    assertEquals(events + 2, StandIn.live("event"));
    assertEquals(timing, StandIn.live("timing event"));
  }

  @ParameterizedTest
  @EnumSource
  void launchOnFullQueueDelaysNoOtherThread(Launch launch) {
    CompletableFuture<Void> stuckEnd = stuck.completion().toCompletableFuture();
    StandIn.queue(1);
    long calls = StandIn.calls(launch.function);
    Call blocked = start(() -> launch(launch));
    await(() -> StandIn.calls(launch.function) > calls);
    assertNull(start(() -> assertFalse(stuck.isComplete())).failure());
    assertNull(start(event::isComplete).failure());
    Stream other = pair.stream(1);
    CompletableFuture<Void> otherEnd = other.completion().toCompletableFuture();
    otherEnd.join();
    StandIn.failStream(CudaStream.of(other).address(), LAUNCH_FAILURE);
    Call failing = start(() -> other.completion().toCompletableFuture().join());
    assertInstanceOf(CudaException.class, failing.failure().getCause());
    StandIn.failStream(CudaStream.of(other).address(), 0);
    assertFalse(blocked.end.isDone());
    assertFalse(stuckEnd.isDone());
    pair.rank(0).abort();
    blocked.failure();
    assertTrue(blocked.end.isDone());
  }

  private void uploadThreeTimes() {
    // Two chunks are staged; the third upload waits for the device to read one of them.
    for (int i = 0; i < 3; i++) {
      upload();
    }
  }

  private void upload() {
    buffer.copyFromAsync(MemorySegment.ofArray(new int[COUNT]), stuck);
  }

  private void launch(Launch launch) {
    switch (launch) {
      case FILL -> buffer.fill((byte) 1, stuck);
      case UPLOAD -> upload();
      case RECORD -> stuck.record(event);
      case COMPLETION -> stuck.completion();
      case ALL_REDUCE -> pair.rank(0).allReduce(reduced, reduced, ReduceOp.SUM, stuck);
    }
  }

  /** A call in its own thread, and its result. */
  private record Call(Thread thread, CompletableFuture<Throwable> end) {
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
  }

  private static Call start(Runnable call) {
    CompletableFuture<Throwable> end = new CompletableFuture<>();
    Runnable run =
        () -> {
          try {
            call.run();
            end.complete(null);
          } catch (RuntimeException | Error failure) {
            end.complete(failure);
          }
        };
    return new Call(Thread.ofPlatform().daemon().start(run), end);
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
