package io.nccl4j.internal.ffm;

import io.nccl4j.internal.util.Interrupts;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.function.Supplier;

/**
 * Keeps virtual threads out of calls that depend on the state of an operating system thread:
 * rejects the call, or, if it closes or frees something, makes it on a platform thread.
 */
public final class PlatformThreads {
  private PlatformThreads() {}

  /**
   * Throws on a virtual thread. It can move to another operating system thread, where CUDA's
   * current device and NCCL's group depth differ.
   *
   * @param function the C function that the caller is about to call
   */
  public static void require(String function) {
    if (Thread.currentThread().isVirtual()) {
      throw new IllegalStateException(
          function
              + " was called in a virtual thread; CUDA and NCCL keep state for each thread of the"
              + " operating system, so use a platform thread");
    }
  }

  /**
   * Makes a call uninterruptibly: on this thread, or on a new platform thread if this is a virtual
   * thread. The wait for that thread has no deadline, apart from the call's own. An interrupt is
   * restored afterwards.
   *
   * @param function the name of the function, which names the new thread
   * @return the result of the call; its exceptions are rethrown unchanged
   */
  public static <T> T call(String function, Supplier<T> call) {
    if (!Thread.currentThread().isVirtual()) {
      return call.get();
    }
    FutureTask<T> task = new FutureTask<>(call::get);
    BlockingCalls.start(function, task);
    try {
      return Interrupts.getUninterruptibly(task::get);
    } catch (ExecutionException e) {
      throw BlockingCalls.rethrown(e.getCause());
    }
  }

  /** Makes a call without a result like {@link #call}. */
  public static void run(String function, Runnable call) {
    call(
        function,
        () -> {
          call.run();
          return null;
        });
  }
}
