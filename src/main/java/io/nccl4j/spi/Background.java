package io.nccl4j.spi;

import io.nccl4j.internal.util.CloseAll;
import io.nccl4j.internal.util.Interrupts;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;
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
            end.completeExceptionally(failure);
          }
        };
    Thread.ofPlatform().daemon().inheritInheritableThreadLocals(false).name(thread).start(run);
    return end.minimalCompletionStage();
  }

  /**
   * Runs each work in a new daemon thread, or in this one if none can be started, and waits for all
   * of them, uninterruptibly. Throws the first failure, with the others suppressed.
   */
  public static void runTogether(String thread, List<Runnable> works) {
    together(
        works.stream()
            .<Supplier<CompletionStage<Void>>>map(work -> () -> startOrRun(thread, work))
            .toList());
  }

  /** Runs work in a new daemon thread, or in this one if none can be started. */
  public static CompletionStage<Void> startOrRun(String thread, Runnable work) {
    try {
      return start(
          thread,
          () -> {
            work.run();
            return null;
          });
    } catch (OutOfMemoryError noThread) {
      work.run();
      return CompletableFuture.completedStage(null);
    }
  }

  /**
   * Starts several works, and waits for all of them, uninterruptibly. Throws the first failure,
   * with the others suppressed.
   *
   * @param starts each starts one, and returns a stage that ends with it
   */
  public static void together(List<Supplier<CompletionStage<Void>>> starts) {
    List<Runnable> waits = new ArrayList<>();
    List<Runnable> steps = new ArrayList<>();
    starts.forEach(
        start ->
            steps.add(
                () -> {
                  CompletableFuture<Void> end = start.get().toCompletableFuture();
                  waits.add(() -> await(end));
                }));
    steps.add(() -> CloseAll.all(waits));
    CloseAll.all(steps);
  }

  private static void await(CompletableFuture<Void> end) {
    try {
      Interrupts.getUninterruptibly(end::get);
    } catch (ExecutionException e) {
      switch (e.getCause()) {
        case RuntimeException failure -> throw failure;
        case Error failure -> throw failure;
        case null, default -> throw new AssertionError(e);
      }
    }
  }
}
