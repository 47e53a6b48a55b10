package io.nccl4j.natives;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Graph;
import io.nccl4j.Stream;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** What other threads meet at the end of a capture, which a call of theirs would break. */
@OnStandIn
class CaptureTest {
  // Each meets the moment before the native end by chance.
  private static final int CAPTURES = 500;

  @BeforeEach
  void reset() {
    StandIn.reset();
  }

  @Test
  void anotherThreadIsRefusedUntilCudaHasEndedTheCapture() throws Exception {
    try (Backend backend = Backend.nccl();
        Stream stream = backend.newStream(0)) {
      for (int i = 0; i < CAPTURES; i++) {
        CountDownLatch refused = new CountDownLatch(1);
        CompletableFuture<Boolean> answer = new CompletableFuture<>();
        Runnable ask =
            () -> {
              try {
                answer.complete(firstAnswer(stream, refused));
              } catch (RuntimeException failure) {
                answer.completeExceptionally(failure);
              }
            };
        Runnable askAndGoOn =
            () -> {
              Thread.ofPlatform().daemon().start(ask);
              awaitRefusal(refused);
            };
        Graph.capture(List.of(stream), askAndGoOn).getFirst().close();
        assertTrue(answer.get(20, TimeUnit.SECONDS), "nothing is enqueued");
      }
    }
  }

  /** Asks until the stream answers. */
  private static boolean firstAnswer(Stream stream, CountDownLatch refused) {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
    while (System.nanoTime() < end) {
      try {
        return stream.isComplete();
      } catch (IllegalStateException captured) {
        refused.countDown();
      }
    }
    throw new IllegalStateException("no answer: " + stream);
  }

  private static void awaitRefusal(CountDownLatch refused) {
    try {
      assertTrue(refused.await(20, TimeUnit.SECONDS), "nobody was refused");
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }
}
