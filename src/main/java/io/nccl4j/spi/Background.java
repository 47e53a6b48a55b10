package io.nccl4j.spi;

import io.nccl4j.internal.util.MemoryShortage;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.function.Supplier;

/** Runs blocking work in a new thread. */
public final class Background {
  private Background() {}

  /**
   * Starts work in a new daemon thread.
   *
   * @param <T> the type of the result
   * @param thread the name of the thread
   * @return a stage that only the work completes; it fails with the exception of the work
   */
  public static <T> CompletionStage<T> start(String thread, Supplier<T> work) {
    CompletableFuture<T> end = new CompletableFuture<>();
    Runnable run =
        () -> {
          try {
            end.complete(work.get());
          } catch (Throwable failure) {
            MemoryShortage.fail(end, failure);
          }
        };
    Thread.ofPlatform().daemon().name(thread).start(run);
    return end.minimalCompletionStage();
  }
}
