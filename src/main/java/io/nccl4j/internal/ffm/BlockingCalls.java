package io.nccl4j.internal.ffm;

import io.nccl4j.NcclTimeoutException;
import io.nccl4j.internal.util.Backoff;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Interrupts;
import io.nccl4j.internal.util.Loggers;
import java.time.Duration;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;
import java.util.function.Supplier;
import org.apache.logging.log4j.Logger;

/**
 * Runs native calls that may block indefinitely on a separate thread, so that the caller can time
 * out.
 *
 * <p>A new thread for each call also keeps a leaked NCCL group depth, which is per thread, from the
 * caller's thread.
 */
public final class BlockingCalls {
  // NCCL's topology search is recursive: on a machine with many GPUs it needs more than Java's
  // default of 1 MiB. This only reserves address space; memory is committed as it is used.
  private static final long STACK_BYTES = 16L << 20;

  private static final Logger LOG = Loggers.of(BlockingCalls.class);

  private BlockingCalls() {}

  /**
   * Runs a call and waits for it.
   *
   * @param function the name of the function, for messages
   * @param timeout the longest wait; after it, the call continues on its thread, which is a daemon
   * @param waitedFor what the call waits for, for the message of a timeout
   * @throws NcclTimeoutException if the timeout has expired
   * @throws CancellationException if the waiting thread was interrupted; its interrupt status stays
   *     set
   */
  public static void run(String function, Duration timeout, String waitedFor, Runnable call) {
    try {
      await(startTask(function, call), function, Deadline.after(timeout), waitedFor);
    } catch (InterruptedException e) {
      throw Interrupts.cancelled(function);
    } catch (TimeoutException e) {
      throw new NcclTimeoutException(function, timeout, waitedFor);
    } catch (ExecutionException e) {
      throw rethrown(e.getCause());
    }
  }

  /**
   * Runs a call like {@link #run}, uninterruptibly. An interrupt during the wait is restored
   * afterwards.
   */
  public static void runUninterrupted(
      String function, Duration timeout, String waitedFor, Runnable call) {
    FutureTask<Void> task = startTask(function, call);
    Deadline deadline = Deadline.after(timeout);
    try {
      Interrupts.awaitUninterruptibly(
          () -> {
            try {
              await(task, function, deadline, waitedFor);
            } catch (TimeoutException e) {
              throw new NcclTimeoutException(function, timeout, waitedFor);
            }
          });
    } catch (ExecutionException e) {
      throw rethrown(e.getCause());
    }
  }

  /**
   * Runs a call that returns a result, uninterruptibly. An interrupt during the wait is restored
   * afterwards.
   *
   * @param late receives a result that arrives after the timeout, on the thread of the call
   * @throws NcclTimeoutException if the timeout has expired
   */
  public static <T> T callUninterrupted(
      String function, Duration timeout, String waitedFor, Supplier<T> call, Consumer<T> late) {
    CompletableFuture<T> future = new CompletableFuture<>();
    Runnable work =
        () -> {
          T result = call.get();
          if (!future.complete(result)) {
            late.accept(result);
          }
        };
    try {
      runUninterrupted(function, timeout, waitedFor, work);
    } catch (NcclTimeoutException timedOut) {
      // Only one of the two completes the future: the result is either returned or late.
      if (future.completeExceptionally(timedOut)) {
        throw timedOut;
      }
    }
    return future.join();
  }

  /**
   * Pauses between two queries.
   *
   * @param function the name of the function that is waited for, for messages
   * @return false, without a pause, if the deadline has passed
   * @throws CancellationException if the thread was interrupted and the pause is a sleep; its
   *     interrupt status stays set
   */
  public static boolean pause(Backoff backoff, String function) {
    try {
      return backoff.pause();
    } catch (InterruptedException e) {
      throw Interrupts.cancelled(function);
    }
  }

  /**
   * Repeats a wait after each interrupt until it succeeds or the deadline passes. An interrupt is
   * restored afterwards.
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

  /** Starts work without waiting for it. The work must not throw. */
  public static void start(String function, Runnable work) {
    thread(function).start(work);
  }

  /** Waits for a call, with a warning if that takes long. */
  private static void await(
      FutureTask<Void> task, String function, Deadline deadline, String waitedFor)
      throws InterruptedException, ExecutionException, TimeoutException {
    Duration first = Deadline.warning(deadline.timeout());
    try {
      task.get(Math.min(first.toNanos(), deadline.remainingNanos()), TimeUnit.NANOSECONDS);
    } catch (TimeoutException slow) {
      LOG.warn(
          "{} has not finished after {} s: it waits for {}",
          function,
          first.toMillis() / 1000.0,
          waitedFor);
      task.get(deadline.remainingNanos(), TimeUnit.NANOSECONDS);
    }
  }

  private static FutureTask<Void> startTask(String function, Runnable call) {
    FutureTask<Void> task = new FutureTask<>(call, null);
    thread(function).start(task);
    return task;
  }

  private static Thread.Builder.OfPlatform thread(String function) {
    return Thread.ofPlatform().daemon().name("nccl4j-" + function).stackSize(STACK_BYTES);
  }

  /** Throws an error; returns an exception of a call, to be thrown by the caller. */
  public static RuntimeException rethrown(Throwable cause) {
    if (cause instanceof Error error) {
      throw error;
    }
    return (RuntimeException) cause;
  }
}
