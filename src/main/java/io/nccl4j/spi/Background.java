package io.nccl4j.spi;

import io.nccl4j.internal.util.MemoryShortage;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.function.Supplier;

/** Work that waits, in a thread of its own. */
public final class Background {
  private Background() {}

  /**
   * Starts work.
   *
   * @param <T> what it makes
   * @param thread the thread's name
   * @return a stage that nothing else can complete, and that fails with what the work throws
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
