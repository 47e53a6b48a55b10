package io.nccl4j.internal;

import io.nccl4j.NcclTimeoutException;
import io.nccl4j.internal.util.Backoff;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Interrupts;
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
public final class BlockingCalls {
  // NCCL's topology search is recursive: a machine with many GPUs takes more than the 1 MiB that
  // Java gives a thread. It is reserved address space, of which only what is used becomes memory.
  private static final long STACK_BYTES = 16L << 20;

  private BlockingCalls() {}

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
      throw Interrupts.cancelled(function);
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
    FutureTask<Void> task = startTask(function, call);
    Deadline deadline = Deadline.after(timeout);
    try {
      Interrupts.awaitUninterruptibly(
          () -> {
            try {
              task.get(deadline.remainingNanos(), TimeUnit.NANOSECONDS);
            } catch (TimeoutException e) {
              throw new NcclTimeoutException(function, timeout, waitedFor);
            }
          });
    } catch (ExecutionException e) {
      throw rethrown(e.getCause());
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
   * Pauses between two queries.
   *
   * @param function what is waited for, for messages
   * @return false, without a pause, if no time is left
   * @throws CancellationException if the thread was interrupted and the wait is long enough for
   *     sleeps; its interrupt flag stays set
   */
  public static boolean pause(Backoff backoff, String function) {
    try {
      return backoff.pause();
    } catch (InterruptedException e) {
      throw Interrupts.cancelled(function);
    }
  }

  /**
   * Repeats a wait that an interrupt cancels until the deadline; the interrupt is kept for later.
   */
  public static void uninterrupted(Duration timeout, Consumer<Deadline> wait) {
    Deadline deadline = Deadline.after(timeout);
    Interrupts.awaitUninterruptibly(
        () -> {
          try {
            wait.accept(deadline);
          } catch (CancellationException cancelled) {
            Thread.interrupted();
            throw new InterruptedException();
          }
        });
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

  static RuntimeException rethrown(Throwable cause) {
    if (cause instanceof Error error) {
      throw error;
    }
    return (RuntimeException) cause;
  }
}
