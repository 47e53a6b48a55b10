package io.nccl4j.internal.util;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * Retries for library threads that run out of memory in a step that others wait for. Such a thread
 * repeats the step until the program has freed memory; if it ended instead, the others would wait
 * indefinitely.
 */
public final class MemoryShortage {
  private static final long PAUSE_MILLIS = 10;
  private static final long MAX_NANOS = TimeUnit.SECONDS.toNanos(30);

  private MemoryShortage() {}

  /**
   * Pauses before a step is repeated. Allocates nothing.
   *
   * @param shortage the failure of the step
   * @param since the {@link System#nanoTime} of the first attempt
   * @throws OutOfMemoryError the shortage, if it has lasted for 30 seconds
   */
  public static void pause(OutOfMemoryError shortage, long since) {
    if (System.nanoTime() - since > MAX_NANOS) {
      throw shortage;
    }
    pause();
  }

  /** Pauses before a step that is repeated without a limit. Allocates nothing. */
  public static void pause() {
    try {
      Thread.sleep(PAUSE_MILLIS);
    } catch (InterruptedException _) {
      // Only library threads call this; an interrupt has no meaning for them.
    }
  }

  /**
   * Completes a stage with a failure, once there is enough memory.
   *
   * @param stage the stage
   * @param failure the failure
   */
  public static void fail(CompletableFuture<?> stage, Throwable failure) {
    long since = System.nanoTime();
    while (true) {
      try {
        stage.completeExceptionally(failure);
        return;
      } catch (OutOfMemoryError shortage) {
        pause(shortage, since);
      }
    }
  }
}
