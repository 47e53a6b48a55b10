package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.CudaException;
import io.nccl4j.Graph;
import io.nccl4j.Stream;
import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.StandIn;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Tests the end of a capture: calls of other threads, and the clean-up after a failure. */
@OnStandIn
class CaptureTest {
  // Whether a call falls into the moment before the native end is a matter of chance.
  private static final int CAPTURES = 500;

  private static final int ILLEGAL_ADDRESS = 700;
  private static final int OUT_OF_MEMORY = 2;

  @BeforeEach
  void reset() {
    StandIn.reset();
  }

  @Test
  void otherThreadIsRefusedUntilCudaEndsTheCapture() throws Exception {
    try (Backend backend = Backend.nccl();
        Stream stream = backend.newStream(0)) {
      for (int i = 0; i < CAPTURES; i++) {
        CountDownLatch refused = new CountDownLatch(1);
        CompletableFuture<Boolean> answer = new CompletableFuture<>();
        Runnable query =
            () -> {
              try {
                answer.complete(firstAnswer(stream, refused));
              } catch (RuntimeException failure) {
                answer.completeExceptionally(failure);
              }
            };
        Runnable startQueryAndContinue =
            () -> {
              Thread.ofPlatform().daemon().start(query);
              awaitRefusal(refused);
            };
        Graph.capture(List.of(stream), startQueryAndContinue).getFirst().close();
        assertTrue(answer.get(20, TimeUnit.SECONDS), "nothing is enqueued");
      }
    }
  }

  @Test
  void captureFailingAtItsEndFreesGraphsAndSuppressesLater() {
    try (Backend backend = Backend.nccl();
        Stream one = backend.newStream(0);
        Stream two = backend.newStream(0);
        Stream three = backend.newStream(0)) {
      long graphs = StandIn.live("graph");
      StandIn.fail("cudaGraphInstantiate", OUT_OF_MEMORY, 3);
      StandIn.fail("cudaGraphExecDestroy", ILLEGAL_ADDRESS, 1);
      CudaException failure =
          assertThrows(
              CudaException.class, () -> Graph.capture(List.of(one, two, three), () -> {}));
      assertEquals("cudaGraphInstantiate", failure.function());
      assertEquals(1, failure.getSuppressed().length);
      assertEquals(
          "cudaGraphExecDestroy",
          assertInstanceOf(CudaException.class, failure.getSuppressed()[0]).function());
      assertEquals(graphs + 1, StandIn.live("graph"), "all but the one that CUDA would not free");
    }
  }

  @Test
  void graphDestroyFailureIsSuppressedByInstantiateFailure() {
    try (Backend backend = Backend.nccl();
        Stream stream = backend.newStream(0)) {
      StandIn.fail("cudaGraphInstantiate", OUT_OF_MEMORY, 1);
      StandIn.fail("cudaGraphDestroy", ILLEGAL_ADDRESS, 1);
      CudaException failure =
          assertThrows(CudaException.class, () -> Graph.capture(List.of(stream), () -> {}));
      assertEquals("cudaGraphInstantiate", failure.function());
      assertEquals(1, failure.getSuppressed().length);
      assertEquals(
          "cudaGraphDestroy",
          assertInstanceOf(CudaException.class, failure.getSuppressed()[0]).function());
    }
  }

  @Test
  void executableGraphIsFreedIfCapturedGraphCannotBe() {
    try (Backend backend = Backend.nccl();
        Stream stream = backend.newStream(0)) {
      long graphs = StandIn.live("graph");
      StandIn.fail("cudaGraphDestroy", ILLEGAL_ADDRESS, 1);
      CudaException failure =
          assertThrows(CudaException.class, () -> Graph.capture(List.of(stream), () -> {}));
      assertEquals("cudaGraphDestroy", failure.function());
      assertEquals(graphs + 1, StandIn.live("graph"), "all but the one that CUDA would not free");
    }
  }

  /** Queries the stream until the call is no longer refused. */
  private static boolean firstAnswer(Stream stream, CountDownLatch refused) {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
    while (System.nanoTime() < end) {
      try {
        return stream.isComplete();
      } catch (IllegalStateException captured) {
        refused.countDown();
      }
    }
    throw new IllegalStateException("refused for 10 s: " + stream);
  }

  private static void awaitRefusal(CountDownLatch refused) {
    try {
      assertTrue(refused.await(20, TimeUnit.SECONDS), "no query was refused");
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }
}
