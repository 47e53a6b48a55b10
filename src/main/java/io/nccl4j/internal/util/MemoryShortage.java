package io.nccl4j.internal.util;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * What a thread of the library does when it has no memory for a step that others wait for. It
 * repeats the step until the program has freed some: a thread that ended instead would leave those
 * that wait for it without an answer.
 */
public final class MemoryShortage {
  private static final long PAUSE_MILLIS = 10;
  private static final long LONGEST_NANOS = TimeUnit.SECONDS.toNanos(30);

  private MemoryShortage() {}

  /**
   * Pauses before a step is repeated; allocates nothing.
   *
   * @param shortage what the step has failed with
   * @param since the {@link System#nanoTime} of the first attempt
   * @throws OutOfMemoryError the shortage, if it has lasted for 30 seconds
   */
  public static void pause(OutOfMemoryError shortage, long since) {
    if (System.nanoTime() - since > LONGEST_NANOS) {
      throw shortage;
    }
    pause();
  }

  /** Pauses before a step is repeated for as long as it takes; allocates nothing. */
  public static void pause() {
    try {
      Thread.sleep(PAUSE_MILLIS);
    } catch (InterruptedException _) {
      // The threads that come here are the library's own; an interrupt of one asks for nothing.
    }
  }

  /**
   * Completes a stage with a failure, as soon as there is memory for that.
   *
   * @param stage the stage
   * @param failure the reason that its dependents get
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
