package io.nccl4j.tools.perf;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Phaser;
import java.util.function.IntFunction;

/** The threads that enqueue operations: a single one is the caller's, several are a pool. */
final class EnqueueThreads implements AutoCloseable {
  private final int threads;
  private final Runnable onFailure;
  // Once terminated, it also releases the threads that arrive later.
  private final Phaser barrier;
  private final ExecutorService pool;

  /** Thrown when another thread has failed; that thread's failure is the one to report. */
  private static final class OtherThreadFailed extends RuntimeException {
    private static final long serialVersionUID = 1;

    OtherThreadFailed() {
      super("another thread failed");
    }
  }

  /**
   * Creates the threads.
   *
   * @param onFailure releases the other threads when one has failed
   */
  EnqueueThreads(int threads, Runnable onFailure) {
    this.threads = threads;
    this.onFailure = onFailure;
    this.barrier = new Phaser(threads);
    this.pool =
        threads == 1
            ? null
            : Executors.newFixedThreadPool(
                threads, Thread.ofPlatform().daemon().name("perf-driver-", 0).factory());
  }

  /** Runs the same work in every thread, given the thread's number, and returns all results. */
  <T> List<T> all(IntFunction<T> work) {
    if (pool == null) {
      return List.of(guarded(work, 0));
    }
    List<Future<T>> running = new ArrayList<>();
    for (int thread = 0; thread < threads; thread++) {
      int number = thread;
      running.add(pool.submit(() -> guarded(work, number)));
    }
    return join(running);
  }

  private <T> T guarded(IntFunction<T> work, int thread) {
    boolean completed = false;
    try {
      T result = work.apply(thread);
      completed = true;
      return result;
    } finally {
      if (!completed) {
        barrier.forceTermination();
        onFailure.run();
      }
    }
  }

  private static <T> List<T> join(List<Future<T>> running) {
    List<T> results = new ArrayList<>();
    Throwable first = null;
    for (Future<T> future : running) {
      try {
        results.add(future.get());
      } catch (ExecutionException e) {
        if (first == null || first instanceof OtherThreadFailed) {
          first = e.getCause();
        }
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        throw new IllegalStateException("interrupted while the ranks were running", e);
      }
    }
    if (first instanceof Error error) {
      throw error;
    }
    if (first != null) {
      throw (RuntimeException) first;
    }
    return results;
  }

  /** Waits until all threads have called this. */
  void barrier() {
    if (threads == 1) {
      return;
    }
    if (barrier.arriveAndAwaitAdvance() < 0) {
      throw new OtherThreadFailed();
    }
  }

  @Override
  public void close() {
    if (pool != null) {
      barrier.forceTermination();
      pool.shutdownNow();
    }
  }
}
