package io.nccl4j.contract;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;

/** Runs something once per rank, each in a thread of its own, with a deadline. */
final class RankThreads {
  private static final Duration DEADLINE = Duration.ofSeconds(40);

  /** What one rank does. */
  interface Body {
    void run(int rank) throws Exception;
  }

  private RankThreads() {}

  /**
   * Runs and waits for all ranks; rethrows the failure that came first, the others suppressed in
   * it.
   *
   * @param onFailure runs at once when a rank has failed, to release those that wait for it
   */
  static void run(int ranks, Body body, Runnable onFailure) {
    AtomicReference<Throwable> first = new AtomicReference<>();
    List<Thread> threads = new ArrayList<>();
    for (int rank = 0; rank < ranks; rank++) {
      int r = rank;
      threads.add(
          Thread.ofPlatform()
              .daemon()
              .name("rank-" + rank)
              .start(
                  () -> {
                    try {
                      body.run(r);
                    } catch (Throwable failure) {
                      if (first.compareAndSet(null, failure)) {
                        onFailure.run();
                      } else {
                        first.get().addSuppressed(failure);
                      }
                    }
                  }));
    }
    String stuck = join(threads);
    if (first.get() != null) {
      throw unchecked(first.get());
    }
    if (!stuck.isEmpty()) {
      onFailure.run();
      throw new AssertionError("ranks did not end within " + DEADLINE + ":\n" + stuck);
    }
  }

  private static String join(List<Thread> threads) {
    long end = System.nanoTime() + DEADLINE.toNanos();
    StringBuilder stuck = new StringBuilder();
    try {
      for (Thread thread : threads) {
        if (!thread.join(Duration.ofNanos(Math.max(1, end - System.nanoTime())))) {
          stuck.append(thread.getName()).append(" at ");
          stuck.append(Arrays.toString(thread.getStackTrace())).append('\n');
        }
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new AssertionError("interrupted while ranks were running", e);
    }
    return stuck.toString();
  }

  /** Makes any failure one that can be thrown from anywhere, without hiding its type. */
  static RuntimeException unchecked(Throwable failure) {
    if (failure instanceof Error error) {
      throw error;
    }
    if (failure instanceof RuntimeException runtime) {
      return runtime;
    }
    throw new AssertionError(failure.toString(), failure);
  }
}
