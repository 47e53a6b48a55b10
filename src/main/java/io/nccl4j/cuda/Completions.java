package io.nccl4j.cuda;

import io.nccl4j.NcclTimeoutException;
import io.nccl4j.Stream;
import io.nccl4j.bindings.cudart.cudaHostFn_t;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * The stages that complete when a stream has come to them.
 *
 * <p>The device calls back when it gets there, but never after an error, and a collective whose
 * peer has died never ends. So a watcher also looks at each stream with a pending stage from time
 * to time, and ends the stage with the stream's failure.
 *
 * <p>Callbacks run in a thread of the driver's, where nothing may call CUDA: stages are completed
 * in a thread of our own.
 */
final class Completions {
  private static final Logger LOG = LogManager.getLogger(Completions.class);
  private static final long WATCH_MILLIS = 100;
  private static final Map<Long, Pending> PENDING = new ConcurrentHashMap<>();
  private static final AtomicLong NEXT_ID = new AtomicLong(1);
  private static final AtomicBoolean WATCHING = new AtomicBoolean();

  // One function for all stages, told apart by the number that comes as its argument; it lives as
  // long as the process.
  private static final MemorySegment CALLBACK =
      cudaHostFn_t.allocate(Completions::called, Arena.global());
  private static final Executor COMPLETERS =
      Executors.newCachedThreadPool(
          Thread.ofPlatform().daemon().name("nccl4j-completion-", 0).factory());

  /** A stage that waits for its stream. */
  private record Pending(CudaStream stream, CompletableFuture<Void> stage, long since) {
    boolean overdue() {
      return System.nanoTime() - since > Stream.DEFAULT_TIMEOUT.toNanos();
    }
  }

  private Completions() {}

  static CompletionStage<Void> of(CudaStream stream) {
    CompletableFuture<Void> stage = new CompletableFuture<>();
    long id = NEXT_ID.getAndIncrement();
    PENDING.put(id, new Pending(stream, stage, System.nanoTime()));
    boolean called = false;
    try {
      stream.callBack(CALLBACK, id);
      called = true;
    } finally {
      if (!called) {
        PENDING.remove(id);
      }
    }
    watch();
    return stage.minimalCompletionStage();
  }

  /** Ends the pending stages of a stream that is given up. */
  static void fail(CudaStream stream, RuntimeException failure) {
    PENDING.forEach(
        (id, pending) -> {
          if (pending.stream() == stream) {
            end(id, failure);
          }
        });
  }

  private static void called(MemorySegment id) {
    try {
      COMPLETERS.execute(() -> reached(id.address()));
    } catch (Throwable e) {
      // An exception that left this method would end the process. The watcher finds the stage
      // again, since its stream is then complete.
      LOG.warn("no thread to complete a stage; the watcher will", e);
    }
  }

  private static void reached(long id) {
    Pending pending = PENDING.get(id);
    if (pending != null) {
      end(id, pending.stream().failure());
    }
  }

  /**
   * Completes a stage, exceptionally if there is a failure; only the first call for a stage does.
   */
  private static void end(long id, RuntimeException failure) {
    Pending pending = PENDING.remove(id);
    if (pending == null) {
      return;
    }
    if (failure == null) {
      pending.stage().complete(null);
    } else {
      pending.stage().completeExceptionally(failure);
    }
  }

  /** Starts the watcher unless one runs; it ends when there is nothing left to watch. */
  private static void watch() {
    if (WATCHING.compareAndSet(false, true)) {
      Thread.ofPlatform().daemon().name("nccl4j-completion-watch").start(Completions::look);
    }
  }

  private static void look() {
    while (true) {
      pause();
      PENDING.forEach(Completions::look);
      if (PENDING.isEmpty()) {
        WATCHING.set(false);
        // A stage that came between the look and the line above found a watcher and started none.
        if (PENDING.isEmpty() || !WATCHING.compareAndSet(false, true)) {
          return;
        }
      }
    }
  }

  private static void look(long id, Pending pending) {
    CudaStream stream = pending.stream();
    RuntimeException failure = stream.failure();
    if (failure != null || stream.idle()) {
      COMPLETERS.execute(() -> end(id, failure));
    } else if (pending.overdue()) {
      NcclTimeoutException late =
          new NcclTimeoutException(
              "cudaLaunchHostFunc", Stream.DEFAULT_TIMEOUT, "the work on " + stream);
      COMPLETERS.execute(() -> end(id, late));
    }
  }

  private static void pause() {
    try {
      TimeUnit.MILLISECONDS.sleep(WATCH_MILLIS);
    } catch (InterruptedException e) {
      // Nobody has a reference to this thread; an interrupt of it asks for nothing.
      Thread.interrupted();
    }
  }
}
