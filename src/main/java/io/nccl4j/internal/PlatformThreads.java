package io.nccl4j.internal;

import io.nccl4j.internal.util.Interrupts;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.function.Supplier;

/**
 * Keeps virtual threads out of calls whose effect belongs to a thread of the operating system:
 * refuses them, or, where something ends or is freed, makes the call in a platform thread.
 */
public final class PlatformThreads {
  private PlatformThreads() {}

  /**
   * Throws in a virtual thread, which can move to another thread of the operating system and leave
   * CUDA's current device and NCCL's group depth behind.
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
   * Makes a call that must not be left half-way: in this thread, or for a virtual thread in a new
   * platform thread. This wait for that thread has no deadline; the call keeps its own. An
   * interrupt is kept for later.
   *
   * @param function what is called, which names the new thread
   * @return what the call returned; what it throws comes out unchanged
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

  /** Makes a call as {@link #call} does, for its effect. */
  public static void run(String function, Runnable call) {
    call(
        function,
        () -> {
          call.run();
          return null;
        });
  }
}
