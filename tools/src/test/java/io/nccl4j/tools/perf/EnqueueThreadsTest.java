package io.nccl4j.tools.perf;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Tests of the threads that enqueue operations. */
@Timeout(value = 1, unit = TimeUnit.MINUTES, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class EnqueueThreadsTest {
  /** Waits until a thread waits for something, such as the barrier or its next task. */
  private static void awaitWaiting(Thread thread) {
    while (thread.getState() != Thread.State.WAITING) {
      Thread.onSpinWait();
    }
  }

  @Test
  void barrierWaitsForAllThreads() {
    AtomicInteger arrived = new AtomicInteger();
    try (EnqueueThreads threads = new EnqueueThreads(3, () -> {})) {
      List<Integer> seen =
          threads.all(
              thread -> {
                arrived.incrementAndGet();
                threads.barrier();
                return arrived.get();
              });
      assertEquals(List.of(3, 3, 3), seen);
    }
  }

  @Test
  void failureReleasesThreadThatWaits() {
    CompletableFuture<Thread> waiting = new CompletableFuture<>();
    assertFails(
        threads -> {
          waiting.complete(Thread.currentThread());
          threads.barrier();
        },
        () -> awaitWaiting(waiting.join()));
  }

  @Test
  void failureReleasesThreadThatArrivesLater() {
    CompletableFuture<Thread> failing = new CompletableFuture<>();
    assertFails(
        threads -> {
          awaitWaiting(failing.join());
          threads.barrier();
        },
        () -> failing.complete(Thread.currentThread()));
  }

  /** Runs work in one thread and fails in another; asserts that this failure is reported. */
  private static void assertFails(Consumer<EnqueueThreads> work, Runnable beforeFailure) {
    IllegalArgumentException failure = new IllegalArgumentException("a bad size");
    try (EnqueueThreads threads = new EnqueueThreads(2, () -> {})) {
      RuntimeException thrown =
          assertThrows(
              RuntimeException.class,
              () ->
                  threads.all(
                      thread -> {
                        if (thread == 1) {
                          beforeFailure.run();
                          throw failure;
                        }
                        work.accept(threads);
                        return thread;
                      }));
      assertSame(failure, thrown);
    }
  }
}
