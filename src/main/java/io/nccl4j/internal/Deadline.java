package io.nccl4j.internal;

import io.nccl4j.NcclTimeoutException;
import java.time.Duration;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;
import java.util.function.Supplier;

/**
 * Runs native calls that may block indefinitely in a thread of their own, so that the caller gets
 * an answer in time.
 *
 * <p>The fresh thread is also what keeps a leaked group depth of NCCL's (which counts per thread)
 * away from the caller's thread.
 */
public final class Deadline {
  // NCCL's topology search is recursive: a machine with many GPUs takes more than the 1 MiB that
  // Java gives a thread. It is reserved address space, of which only what is used becomes memory.
  private static final long STACK_BYTES = 16L << 20;

  private Deadline() {}

  /**
   * Runs a call and waits for it.
   *
   * @param function what is called, for messages
   * @param timeout the longest wait; after it the call goes on in its own thread, which is a daemon
   * @param waitedFor what a time-out message says was waited for
   * @throws NcclTimeoutException if the time has passed
   * @throws CancellationException if the waiting thread was interrupted; its interrupt flag stays
   *     set
   */
  public static void run(String function, Duration timeout, String waitedFor, Runnable call) {
    try {
      startTask(function, call).get(TimeUnit.NANOSECONDS.convert(timeout), TimeUnit.NANOSECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw interrupted(function);
    } catch (TimeoutException e) {
      throw new NcclTimeoutException(function, timeout, waitedFor);
    } catch (ExecutionException e) {
      throw rethrown(e.getCause());
    }
  }

  /**
   * Does what {@link #run} does for a call that must not be left half-way: an interrupt is kept for
   * later.
   */
  public static void runUninterrupted(
      String function, Duration timeout, String waitedFor, Runnable call) {
    boolean interrupted = Thread.interrupted();
    FutureTask<Void> task = startTask(function, call);
    long limit = TimeUnit.NANOSECONDS.convert(timeout);
    long start = System.nanoTime();
    try {
      while (true) {
        try {
          task.get(limit - (System.nanoTime() - start), TimeUnit.NANOSECONDS);
          return;
        } catch (InterruptedException e) {
          interrupted = true;
        }
      }
    } catch (TimeoutException e) {
      throw new NcclTimeoutException(function, timeout, waitedFor);
    } catch (ExecutionException e) {
      throw rethrown(e.getCause());
    } finally {
      if (interrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }

  /**
   * Runs a call that has a result and must not be left half-way: an interrupt is kept for later.
   *
   * @param late gets a result that comes after the time has passed, in the thread of the call
   * @throws NcclTimeoutException if the time has passed
   */
  public static <T> T callUninterrupted(
      String function, Duration timeout, String waitedFor, Supplier<T> call, Consumer<T> late) {
    CompletableFuture<T> answer = new CompletableFuture<>();
    Runnable work =
        () -> {
          T result = call.get();
          if (!answer.complete(result)) {
            late.accept(result);
          }
        };
    try {
      runUninterrupted(function, timeout, waitedFor, work);
    } catch (NcclTimeoutException timedOut) {
      // Only one of the two completes it: the result is the caller's or comes too late.
      if (answer.completeExceptionally(timedOut)) {
        throw timedOut;
      }
    }
    return answer.join();
  }

  /**
   * Repeats a wait that an interrupt ends until the time is up; the interrupt is kept for later.
   *
   * @param wait waits for at most the duration that it gets
   */
  public static void uninterrupted(Duration timeout, Consumer<Duration> wait) {
    boolean interrupted = Thread.interrupted();
    long limit = TimeUnit.NANOSECONDS.convert(timeout);
    long start = System.nanoTime();
    Duration left = timeout;
    try {
      while (true) {
        try {
          wait.accept(left);
          return;
        } catch (CancellationException e) {
          interrupted |= Thread.interrupted();
          left = Duration.ofNanos(Math.max(1, limit - (System.nanoTime() - start)));
        }
      }
    } finally {
      if (interrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }

  /** Starts work for which nobody waits, and which throws nothing. */
  public static void start(String function, Runnable work) {
    thread(function).start(work);
  }

  private static FutureTask<Void> startTask(String function, Runnable call) {
    FutureTask<Void> task = new FutureTask<>(call, null);
    thread(function).start(task);
    return task;
  }

  private static Thread.Builder.OfPlatform thread(String function) {
    return Thread.ofPlatform().daemon().name("nccl4j-" + function).stackSize(STACK_BYTES);
  }

  /** Returns what a wait throws whose thread was interrupted. */
  public static CancellationException interrupted(String function) {
    return new CancellationException("interrupted while waiting for " + function);
  }

  static RuntimeException rethrown(Throwable cause) {
    if (cause instanceof Error error) {
      throw error;
    }
    return (RuntimeException) cause;
  }
}
