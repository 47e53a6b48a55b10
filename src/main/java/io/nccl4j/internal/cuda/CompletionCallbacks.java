package io.nccl4j.internal.cuda;

import io.nccl4j.internal.Poller;
import io.nccl4j.internal.util.MemoryShortage;
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
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * What waits for a stream to come to where it is: the stages that complete then, and the spans that
 * are over.
 *
 * <p>The device calls back when it gets there, but never after an error, and a collective whose
 * peer has died never ends. So a watcher also looks at each stream with a long wait from time to
 * time, and ends the wait with the stream's failure.
 *
 * <p>Callbacks run in a thread of the driver's, where nothing may call CUDA: waits end in a thread
 * of our own.
 */
final class CompletionCallbacks {
  private static final Logger LOG = LogManager.getLogger(CompletionCallbacks.class);
  private static final long WATCH_MILLIS = 100;
  private static final long NANOS_PER_MILLI = 1_000_000;
  private static final Map<Long, Pending> PENDING = new ConcurrentHashMap<>();
  private static final AtomicLong NEXT_ID = new AtomicLong(1);
  private static final Poller WATCHER =
      new Poller(
          Thread.ofPlatform().daemon().name("nccl4j-completion-watch").factory(),
          WATCH_MILLIS,
          () -> PENDING.forEach(CompletionCallbacks::lookOrEnd),
          PENDING::isEmpty);

  // One function for all waits, told apart by the number that comes as its argument; it lives as
  // long as the process.
  private static final MemorySegment CALLBACK = callback();
  private static final Executor COMPLETERS =
      Executors.newCachedThreadPool(
          Thread.ofPlatform().daemon().name("nccl4j-completion-", 0).factory());

  /** What waits for a stream to come to where it is now. */
  private interface Waiter {
    /** Hears, in the driver's thread, that the stream has come there. */
    void reached();

    /** Returns what has failed once the stream has come there, or null. */
    RuntimeException failure();

    /** Hears, in a thread of our own, that the wait is over, and what has failed, or null. */
    void end(Throwable failure);
  }

  /** A stage that waits for its stream. */
  private record Stage(CudaStreamDriver stream, CompletableFuture<Void> future) implements Waiter {
    @Override
    public void reached() {
      // It completes in a thread of our own.
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
        MemoryShortage.fail(future, failure);
      }
    }
  }

  /** A span that is over when its stream has come there. */
  private record Recorded(CudaStreamDriver stream, OperationTrace trace) implements Waiter {
    @Override
    public void reached() {
      stream.reached(trace);
    }

    @Override
    public RuntimeException failure() {
      // The device has come here without an error of its own.
      return stream.failureOfUsers();
    }

    @Override
    public void end(Throwable failure) {
      trace.ended(failure);
    }
  }

  private record Pending(CudaStreamDriver stream, Waiter waiter, long since) {
    boolean watched() {
      return System.nanoTime() - since > WATCH_MILLIS * NANOS_PER_MILLI;
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

  /** Tells a span when its stream has come to where it is now. */
  static void traceWhenReached(CudaStreamDriver stream, OperationTrace trace) {
    await(stream, new Recorded(stream, trace));
  }

  private static void await(CudaStreamDriver stream, Waiter waiter) {
    long id = NEXT_ID.getAndIncrement();
    PENDING.put(id, new Pending(stream, waiter, System.nanoTime()));
    boolean called = false;
    try {
      // Before the stream gets to know: without a watcher there is no wait.
      WATCHER.watch();
      stream.callBack(CALLBACK, id);
      called = true;
    } finally {
      if (!called) {
        PENDING.remove(id);
      }
    }
  }

  /** Ends the waits for a stream that is given up. */
  static void fail(CudaStreamDriver stream, RuntimeException failure) {
    PENDING.forEach(
        (id, pending) -> {
          if (pending.stream() == stream) {
            end(id, failure);
          }
        });
  }

  /**
   * Links {@link #called} with a number for its argument. The generated {@code cudaHostFn_t} would
   * make a segment of it, and a failure to allocate that ends the process.
   */
  @SuppressWarnings("restricted") // The function type is that of the generated binding.
  private static MemorySegment callback() {
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
      // An exception that left this method would end the process. The watcher finds the wait
      // again, since its stream is then complete.
      try {
        LOG.warn("no thread to end a wait for a stream; the watcher will", e);
      } catch (Throwable unreported) {
        // There is no memory for the message either, or for its first use.
      }
    }
  }

  /** Ends a wait, with what has failed, or null; only the first call for it does. */
  private static void end(long id, Throwable failure) {
    Pending pending = PENDING.remove(id);
    if (pending != null) {
      pending.waiter().end(failure);
    }
  }

  private static void lookOrEnd(long id, Pending pending) {
    try {
      poll(id, pending);
    } catch (OutOfMemoryError shortage) {
      // The next look tries again.
      throw shortage;
    } catch (RuntimeException | Error broken) {
      endElsewhere(id, broken);
    }
  }

  private static void poll(long id, Pending pending) {
    CudaStreamDriver stream = pending.stream();
    // One that has only just come may not have reached the device; a capture suffers no questions.
    if (!pending.watched() || stream.capturing()) {
      return;
    }
    RuntimeException failure = stream.failure();
    if (failure != null || stream.idle()) {
      endElsewhere(id, failure);
    } else if (pending.overdue()) {
      endElsewhere(id, stream.lateCompletion());
    }
  }

  /** Ends a wait in a thread of our own; where there is none now, the next look finds it again. */
  private static void endElsewhere(long id, Throwable failure) {
    try {
      COMPLETERS.execute(() -> end(id, failure));
    } catch (OutOfMemoryError noThread) {
      LOG.warn("no thread to end a wait for a stream; the next look tries again", noThread);
    }
  }
}
