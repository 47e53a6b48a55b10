package io.nccl4j.internal.cuda;

import io.nccl4j.internal.util.Interrupts;
import io.nccl4j.internal.util.Loggers;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import java.util.function.Supplier;
import org.apache.logging.log4j.Logger;

/**
 * Keeps a stream or an event from being destroyed during a call that uses its handle. Calls share a
 * lock: a call can block, as a launch on a full queue does, and must not delay those of others.
 */
final class HandleGuard {
  private static final Logger LOG = Loggers.of(HandleGuard.class);
  private static final int END_SECONDS = 5;

  private final ReentrantReadWriteLock calls = new ReentrantReadWriteLock();
  private final Object owner;
  private final String kind;
  private volatile boolean ended;

  /**
   * Creates a guard.
   *
   * @param owner names the object in messages
   * @param kind what it is
   */
  HandleGuard(Object owner, String kind) {
    this.owner = owner;
    this.kind = kind;
  }

  boolean ended() {
    return ended;
  }

  /** Makes a call with the handle; throws if it has ended. */
  <T> T call(Supplier<T> call) {
    return callUnlessEnded(
        call,
        () -> {
          throw new IllegalStateException(kind + " was closed while in use: " + owner);
        });
  }

  /** Makes a call with the handle, or, if it has ended, another one without it. */
  <T> T callUnlessEnded(Supplier<T> call, Supplier<T> otherwise) {
    // Checked first, because the end may be waiting for the lock, behind a call that blocks.
    if (ended) {
      return otherwise.get();
    }
    calls.readLock().lock();
    try {
      return ended ? otherwise.get() : call.get();
    } finally {
      calls.readLock().unlock();
    }
  }

  /** Refuses calls from now on, and destroys the handle unless a call stays in it. */
  void end(Runnable destroy) {
    ended = true;
    if (!Interrupts.getUninterruptibly(
        () -> calls.writeLock().tryLock(END_SECONDS, TimeUnit.SECONDS))) {
      LOG.warn("{} is not destroyed: a thread is still in a call that uses it", owner);
      return;
    }
    try {
      destroy.run();
    } finally {
      calls.writeLock().unlock();
    }
  }
}
