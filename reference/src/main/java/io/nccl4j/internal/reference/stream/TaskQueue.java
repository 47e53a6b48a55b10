package io.nccl4j.internal.reference.stream;

import io.nccl4j.internal.reference.reduce.MappedViews;
import java.util.concurrent.locks.LockSupport;

/**
 * The task queue of one stream, with reused entries. Producers are serialized by a lock of the
 * owner; one consumer takes tasks and finishes them in order.
 *
 * <p>The consumer references the stream only through pending tasks, so a stream that becomes
 * unreachable without being closed can be garbage collected once its work is done.
 *
 * <p>Invariant: {@code finished <= enqueued}; the tasks between them are pending, and the entry of
 * each stays the same object when the queue grows.
 */
final class TaskQueue {
  private static final int FIRST_CAPACITY = 64;
  private static final long YIELDING_NANOS = 50_000;

  /** How long an idle consumer keeps its views of the memory that it has worked on. */
  private static final long VIEW_RETENTION_NANOS = 1_000_000_000;

  private volatile StreamTask[] entries = new StreamTask[FIRST_CAPACITY];
  private volatile long enqueued;
  private volatile long finished;
  private volatile boolean closed;
  // The consumer while it is parked, or null.
  private volatile Thread sleeper;

  /** Producer: returns the entry that {@link #publish} will append. */
  StreamTask claim() {
    if (enqueued - finished == entries.length) {
      grow();
    }
    int index = (int) enqueued & (entries.length - 1);
    if (entries[index] == null) {
      entries[index] = new StreamTask();
    }
    return entries[index];
  }

  private void grow() {
    StreamTask[] old = entries;
    StreamTask[] larger = new StreamTask[2 * old.length];
    for (long position = finished; position < enqueued; position++) {
      larger[(int) position & (larger.length - 1)] = old[(int) position & (old.length - 1)];
    }
    entries = larger;
  }

  @SuppressWarnings("NonAtomicVolatileUpdate") // Producers hold the owner's lock.
  void publish() {
    enqueued++;
  }

  /** Producer: wakes the consumer, after {@link #publish}. */
  void wake() {
    Thread consumer = sleeper;
    if (consumer != null) {
      LockSupport.unpark(consumer);
    }
  }

  /** Closes the queue to new tasks; the consumer ends after the pending ones. */
  void close() {
    closed = true;
    wake();
  }

  boolean closed() {
    return closed;
  }

  /** Consumer: waits for a task and returns it, or null if the queue is closed and empty. */
  StreamTask await() {
    long idleSince = 0;
    StreamTask task = first();
    while (task == null && !closed) {
      long now = System.nanoTime();
      idleSince = idleSince == 0 ? now : idleSince;
      if (now - idleSince < YIELDING_NANOS) {
        yieldThread();
      } else {
        sleep(now - idleSince);
      }
      task = first();
    }
    // A task that was published before the queue was closed may not have been visible above.
    return task == null ? first() : task;
  }

  /** Sleeps until there may be work; after a while, drops the views of memory. */
  private void sleep(long idleNanos) {
    sleeper = Thread.currentThread();
    if (first() == null && !closed) {
      if (idleNanos < VIEW_RETENTION_NANOS) {
        LockSupport.parkNanos(this, VIEW_RETENTION_NANOS);
      } else {
        MappedViews.forgetOfThread();
        LockSupport.park(this);
      }
    }
    sleeper = null;
    Thread.interrupted();
  }

  @SuppressWarnings("ThreadPriorityCheck") // Yields to threads that may have work for this one.
  private static void yieldThread() {
    Thread.yield();
  }

  /** Consumer: returns the first pending task, or null. */
  StreamTask first() {
    long position = finished;
    if (position == enqueued) {
      return null;
    }
    StreamTask[] current = entries;
    return current[(int) position & (current.length - 1)];
  }

  /** Consumer: returns whether there are pending tasks after the first one. */
  boolean hasMore() {
    return enqueued - finished > 1;
  }

  /** Consumer: finishes the first pending task. */
  @SuppressWarnings("NonAtomicVolatileUpdate") // There is one consumer.
  void finish() {
    finished++;
  }

  long enqueued() {
    return enqueued;
  }

  long finished() {
    return finished;
  }
}
