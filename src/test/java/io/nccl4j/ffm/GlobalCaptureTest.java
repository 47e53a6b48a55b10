package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Buffer;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Event;
import io.nccl4j.Graph;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.bindings.cudart.cudart_h;
import io.nccl4j.cuda.CudaDevices;
import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.StandIn;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/**
 * Tests that nccl4j does not disturb a framework's capture in CUDA's global mode, during which CUDA
 * refuses an unsafe call of any other thread in global mode and invalidates the capture.
 */
@OnStandIn
class GlobalCaptureTest {
  @BeforeEach
  void reset() {
    StandIn.reset();
    StandIn.connect(false); // A collective of one rank blocks in its stream, not in its call.
  }

  @Test
  void pollsAndAllocationsLeaveTheCaptureValid() throws Exception {
    try (Pair pair = new Pair(CommunicatorConfig.defaults());
        Stream stream = pair.rank(0).newStream();
        Event event = pair.rank(0).newEvent();
        Capture capture = new Capture()) {
      stream.record(event);
      event.synchronize(Duration.ofSeconds(20));
      assertTrue(event.isComplete());
      stream.synchronize();
      assertTrue(stream.isComplete());
      Buffer buffer = pair.rank(0).newBuffer(DataType.INT32, 4);
      buffer.copyFromAsync(MemorySegment.ofArray(new int[] {1, 2, 3, 4}), stream);
      int[] values = new int[4];
      buffer.copyTo(MemorySegment.ofArray(values), stream);
      assertEquals(4, values[3]);
      buffer.close();
      pair.backend().newPinnedBuffer(DataType.INT32, 4).close();
      assertEquals(0, capture.end(), "cudaStreamEndCapture");
    }
  }

  @Test
  void graphsLeaveTheCaptureValid() throws Exception {
    try (Pair pair = new Pair(CommunicatorConfig.defaults());
        Buffer buffer = pair.rank(0).newBuffer(DataType.INT32, 4);
        Capture capture = new Capture()) {
      Stream stream = pair.rank(0).newStream();
      Runnable sum = () -> pair.rank(0).allReduce(buffer, buffer, ReduceOp.SUM, stream);
      Graph.capture(stream, sum).close();
      stream.close();
      assertEquals(0, capture.end(), "cudaStreamEndCapture");
    }
  }

  @Test
  void polledCompletionLeavesTheCaptureValid() throws Exception {
    try (Pair pair = new Pair(CommunicatorConfig.defaults());
        Buffer first = pair.rank(0).newBuffer(DataType.INT32, 1);
        Buffer second = pair.rank(1).newBuffer(DataType.INT32, 1)) {
      pair.rank(0).allReduce(first, first, ReduceOp.SUM, pair.stream(0));
      CompletableFuture<Void> done = pair.stream(0).completion().toCompletableFuture();
      try (Capture capture = new Capture()) {
        // The poller checks entries older than 100 ms every 100 ms.
        Thread.sleep(Duration.ofMillis(400));
        assertFalse(done.isDone());
        assertEquals(0, capture.end(), "cudaStreamEndCapture");
      }
      Pair.onOwnThread(() -> pair.rank(1).allReduce(second, second, ReduceOp.SUM, pair.stream(1)));
      done.get(20, TimeUnit.SECONDS);
      pair.stream(1).synchronize();
    }
  }

  /** A thread that captures in global mode, as frameworks do. */
  private static final class Capture implements AutoCloseable {
    private final CountDownLatch begun = new CountDownLatch(1);
    private final CountDownLatch end = new CountDownLatch(1);
    private final CompletableFuture<Integer> ended = new CompletableFuture<>();

    Capture() throws InterruptedException {
      Thread.ofPlatform().daemon().start(this::run);
      assertTrue(begun.await(20, TimeUnit.SECONDS));
    }

    private void run() {
      CudaDevices.use(0);
      try (Arena arena = Arena.ofConfined()) {
        MemorySegment cell = arena.allocate(ValueLayout.ADDRESS);
        assertEquals(0, cudart_h.cudaStreamCreateWithFlags(cell, cudart_h.cudaStreamNonBlocking()));
        MemorySegment stream = cell.get(ValueLayout.ADDRESS, 0);
        int mode = cudart_h.cudaStreamCaptureModeGlobal();
        assertEquals(0, cudart_h.cudaStreamBeginCapture(stream, mode));
        begun.countDown();
        end.await();
        int result = cudart_h.cudaStreamEndCapture(stream, cell);
        if (result == 0) {
          assertEquals(0, cudart_h.cudaGraphDestroy(cell.get(ValueLayout.ADDRESS, 0)));
        }
        assertEquals(0, cudart_h.cudaStreamDestroy(stream));
        ended.complete(result);
      } catch (Throwable failure) {
        ended.completeExceptionally(failure);
      }
    }

    /** Ends the capture and returns the result of {@code cudaStreamEndCapture}. */
    int end() throws Exception {
      end.countDown();
      return ended.get(20, TimeUnit.SECONDS);
    }

    @Override
    public void close() {
      end.countDown();
    }
  }
}
