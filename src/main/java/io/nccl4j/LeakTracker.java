package io.nccl4j;

import io.nccl4j.internal.util.Loggers;
import java.lang.ref.Cleaner;

/**
 * Reports an object that the garbage collector found before it was closed, with the stack of the
 * call that made it.
 *
 * <p>It logs, and ends Java threads; it closes nothing. Closing calls native code, and may wait for
 * other ranks. A communicator that the collector ended on one rank would fail the others at a time
 * that no program chose.
 *
 * <p>The stack is always kept, so that the first report says what to correct. Tracking takes 1 to 4
 * microseconds at up to 100 frames, which is little beside the thread of a reference stream (100
 * and more) or the driver's work for one of CUDA, so there is no switch.
 */
final class LeakTracker {
  private static Cleaner cleaner;

  private final Throwable made = new Throwable("the stack that made it");
  private volatile boolean closed;
  private volatile Runnable afterwards = () -> {};
  private Cleaner.Cleanable watch;
  private String what;

  /** Makes the one for a process when it is needed; a thread that cannot be started fails once. */
  private static synchronized Cleaner cleaner() {
    if (cleaner == null) {
      cleaner = Cleaner.create(Thread.ofPlatform().daemon().name("nccl4j-leaks").factory());
    }
    return cleaner;
  }

  /**
   * Begins to watch an object, unless it is closed already.
   *
   * @param owner what must be closed; it is not kept
   * @param description what the report calls it
   */
  synchronized void watch(Object owner, String description) {
    if (!closed) {
      what = description;
      try {
        watch = cleaner().register(owner, this::collected);
      } catch (OutOfMemoryError shortage) {
        // The object can be used without a watch; failing here would leave what it holds open.
        watch = null;
      }
    }
  }

  /**
   * Sets what to do after a report.
   *
   * @param action ends threads; it must not refer to the object, nor wait
   */
  void afterwards(Runnable action) {
    afterwards = action;
  }

  /** Ends the watch, since the object is closed. Idempotent. */
  synchronized void close() {
    closed = true;
    if (watch != null) {
      watch.clean();
    }
  }

  private void collected() {
    if (closed) {
      return;
    }
    try {
      Loggers.of(LeakTracker.class)
          .warn(
              "{} was never closed and is no longer reachable; what it holds outside the Java heap"
                  + " stays until the process ends",
              what,
              made);
    } finally {
      afterwards.run();
    }
  }
}
