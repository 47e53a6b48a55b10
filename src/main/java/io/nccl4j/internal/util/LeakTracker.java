package io.nccl4j.internal.util;

import java.lang.ref.Cleaner;

/**
 * Logs a warning when an object is garbage-collected without having been closed, with the stack
 * trace of its creation.
 *
 * <p>It ends Java threads, but closes nothing: closing calls native code and may wait for other
 * ranks, and a communicator closed by the collector on one rank would fail the other ranks at an
 * arbitrary time.
 *
 * <p>The stack trace is always captured, so that the first report identifies the code to fix. That
 * takes 1 to 4 microseconds for up to 100 frames, which is small compared to creating the thread of
 * a reference stream (100 microseconds and more) or a CUDA stream, so there is no switch.
 */
public final class LeakTracker {
  private static Cleaner cleaner;

  private final Throwable created = new Throwable("created here");
  private volatile boolean closed;
  private volatile Runnable afterReport = () -> {};
  private Cleaner.Cleanable watch;
  private String what;

  /**
   * Creates the cleaner of the process lazily, and tries again if starting its thread has failed.
   */
  private static synchronized Cleaner cleaner() {
    if (cleaner == null) {
      // The thread must not keep its creator's class loader. It ends once this class is unloaded.
      cleaner =
          Cleaner.create(
              Thread.ofPlatform()
                  .daemon()
                  .inheritInheritableThreadLocals(false)
                  .name("nccl4j-leaks")
                  .factory());
    }
    return cleaner;
  }

  /**
   * Starts to watch an object, unless it is already closed.
   *
   * @param owner the object that must be closed; it is not kept reachable
   * @param description the name of the object in the warning
   */
  public synchronized void watch(Object owner, String description) {
    if (!closed) {
      what = description;
      watch = cleaner().register(owner, this::collected);
    }
  }

  /**
   * Sets an action to run after a warning.
   *
   * @param action ends threads; it must not refer to the object, and must not block
   */
  public void afterReport(Runnable action) {
    afterReport = action;
  }

  /** Stops watching, since the object is closed. Idempotent. */
  public synchronized void close() {
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
              "{} is no longer reachable but was never closed; its resources outside the Java heap"
                  + " stay allocated until the process exits",
              what,
              created);
    } finally {
      afterReport.run();
    }
  }
}
