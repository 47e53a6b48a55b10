package io.nccl4j.internal.cuda;

import io.nccl4j.internal.util.Loggers;
import io.nccl4j.internal.util.Poller;
import io.nccl4j.spi.OperationTrace;
import io.nccl4j.spi.StreamDriver;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;
import org.apache.logging.log4j.Logger;

/**
 * Waits for streams to complete the work enqueued so far, to complete stages and end traces.
 *
 * <p>The device calls back when the stream gets there, but never after an error, and a collective
 * whose peer has died never ends. So a poller also checks each stream with a long wait, and ends
 * the wait with the stream's failure.
 *
 * <p>Callbacks run on a driver thread, which must not call CUDA. Waits therefore end on nccl4j
 * threads.
 */
final class CompletionCallbacks {
  private static final Logger LOG = Loggers.of(CompletionCallbacks.class);
  private static final long POLL_MILLIS = 100;
  private static final long NANOS_PER_MILLI = 1_000_000;
  private static final Map<Long, Pending> PENDING = new ConcurrentHashMap<>();
  private static final AtomicLong NEXT_ID = new AtomicLong(1);
  private static final Poller POLLER =
      new Poller(
          Thread.ofPlatform()
              .daemon()
              .inheritInheritableThreadLocals(false)
              .name("nccl4j-completion-watch")
              .factory(),
          POLL_MILLIS,
          () -> PENDING.forEach(CompletionCallbacks::pollOrEnd),
          PENDING::isEmpty);

  // One function for all waits; its argument is the wait's id. It lives as long as the process,
  // because a driver may call it at any time, and keeps this class loaded. So it is made on first
  // use.
  private static MemorySegment callback;
  private static final Executor COMPLETERS =
      Executors.newCachedThreadPool(
          Thread.ofPlatform()
              .daemon()
              .inheritInheritableThreadLocals(false)
              .name("nccl4j-completion-", 0)
              .factory());

  /** A wait for a stream to complete the work enqueued so far. */
  private interface Waiter {
    /** Called on the driver's thread when the stream has completed the work. */
    void reached();

    /** Returns the failure once the stream has completed the work, or null. */
    RuntimeException failure();

    /** Called on an nccl4j thread when the wait ends, with the failure or null. */
    void end(Throwable failure);
  }

  /** A stage that completes with its stream. */
  private record Stage(CudaStreamDriver stream, CompletableFuture<Void> future) implements Waiter {
    @Override
    public void reached() {
      // The stage completes on an nccl4j thread.
    }

    @Override
    public RuntimeException failure() {
      return stream.failure();
    }

    @Override
    public void end(Throwable failure) {
      if (failure == null) {
        future.complete(null);
      } else {
        future.completeExceptionally(failure);
      }
    }
  }

  /** A trace that ends when its stream has completed the work. */
  private record Recorded(CudaStreamDriver stream, OperationTrace trace) implements Waiter {
    @Override
    public void reached() {
      stream.reached(trace);
    }

    @Override
    public RuntimeException failure() {
      // The device has got here without an error of its own.
      return stream.failureOfUsers();
    }

    @Override
    public void end(Throwable failure) {
      trace.ended(failure);
    }
  }

  private record Pending(CudaStreamDriver stream, Waiter waiter, long since) {
    boolean pollable() {
      return System.nanoTime() - since > POLL_MILLIS * NANOS_PER_MILLI;
    }

    boolean overdue() {
      return System.nanoTime() - since > StreamDriver.DEFAULT_TIMEOUT.toNanos();
    }
  }

  private CompletionCallbacks() {}

  static CompletionStage<Void> of(CudaStreamDriver stream) {
    CompletableFuture<Void> stage = new CompletableFuture<>();
    await(stream, new Stage(stream, stage));
    return stage.minimalCompletionStage();
  }

  /** Ends a trace when its stream has completed the work enqueued so far. */
  static void traceWhenReached(CudaStreamDriver stream, OperationTrace trace) {
    await(stream, new Recorded(stream, trace));
  }

  private static void await(CudaStreamDriver stream, Waiter waiter) {
    // Making it the first time takes long, and a wait that has begun is polled.
    MemorySegment function = callback();
    long id = NEXT_ID.getAndIncrement();
    PENDING.put(id, new Pending(stream, waiter, System.nanoTime()));
    boolean called = false;
    try {
      // Before the callback is enqueued: a wait needs a poller.
      POLLER.watch();
      stream.callBack(function, id);
      called = true;
    } finally {
      if (!called) {
        PENDING.remove(id);
      }
    }
  }

  /** Ends the waits for a stream that is abandoned. */
  static void fail(CudaStreamDriver stream, RuntimeException failure) {
    PENDING.forEach(
        (id, pending) -> {
          if (pending.stream() == stream) {
            end(id, failure);
          }
        });
  }

  private static synchronized MemorySegment callback() {
    if (callback == null) {
      callback = upcallStub();
    }
    return callback;
  }

  /**
   * Links {@link #called} with a number as its argument. The generated {@code cudaHostFn_t} would
   * allocate a segment for it, and a failure to do so would end the process.
   */
  @SuppressWarnings("restricted") // The function type is that of the generated binding.
  private static MemorySegment upcallStub() {
    try {
      return Linker.nativeLinker()
          .upcallStub(
              MethodHandles.lookup()
                  .findStatic(
                      CompletionCallbacks.class,
                      "called",
                      MethodType.methodType(void.class, long.class)),
              FunctionDescriptor.ofVoid(ValueLayout.JAVA_LONG),
              Arena.global());
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  @SuppressWarnings("UnusedMethod") // Called by the driver.
  private static void called(long id) {
    try {
      Pending pending = PENDING.get(id);
      if (pending != null) {
        pending.waiter().reached();
        COMPLETERS.execute(() -> end(id, pending.waiter().failure()));
      }
    } catch (Throwable e) {
      // An exception thrown from this method would end the process. The poller ends the wait
      // instead, since its stream has completed.
      try {
        LOG.warn("no thread to end a wait for a stream; the poller will retry", e);
      } catch (Throwable unreported) {
        // Nor may a failure to log it leave this method.
      }
    }
  }

  /** Ends a wait with its failure, or null. Only the first call has an effect. */
  private static void end(long id, Throwable failure) {
    Pending pending = PENDING.remove(id);
    if (pending != null) {
      pending.waiter().end(failure);
    }
  }

  private static void pollOrEnd(long id, Pending pending) {
    try {
      poll(id, pending);
    } catch (RuntimeException | Error broken) {
      endElsewhere(id, () -> broken);
    }
  }

  private static void poll(long id, Pending pending) {
    CudaStreamDriver stream = pending.stream();
    // A new wait may not have reached the device yet, and a capture must not be queried.
    if (!pending.pollable() || stream.capturing()) {
      return;
    }
    RuntimeException failure = stream.failure();
    if (failure != null || stream.idle()) {
      endElsewhere(id, () -> failure);
    } else if (pending.overdue()) {
      endElsewhere(id, stream::lateCompletion);
    }
  }

  private static Throwable found(Supplier<Throwable> failure) {
    try {
      return failure.get();
    } catch (RuntimeException | Error another) {
      return another;
    }
  }

  /**
   * Ends a wait on an nccl4j thread, since finding the ranks that it waits for may take seconds. If
   * no thread can be started, the next poll tries again.
   */
  private static void endElsewhere(long id, Supplier<Throwable> failure) {
    Pending pending = PENDING.remove(id);
    if (pending == null) {
      return; // the device has called back meanwhile
    }
    try {
      COMPLETERS.execute(() -> pending.waiter().end(found(failure)));
    } catch (OutOfMemoryError noThread) {
      PENDING.put(id, pending);
      LOG.warn("no thread to end a wait for a stream; the next poll tries again", noThread);
    }
  }
}
