package io.nccl4j.internal.reference.stream;

import io.nccl4j.internal.reference.reduce.MappedViews;
import java.util.concurrent.locks.LockSupport;

/**
 * The tasks of one stream, in reused entries. Producers take turns, by a lock of the owner; one
 * consumer takes tasks and says when each is finished.
 *
 * <p>The consumer waits here, and knows the stream only by its pending tasks: so a stream that was
 * forgotten without being closed is garbage once its work is done.
 *
 * <p>Invariant: {@code finished <= enqueued}; the tasks between them are pending, and the entry of
 * each stays the same object when the queue grows.
 */
final class TaskQueue {
  private static final int FIRST_CAPACITY = 64;
  private static final long YIELDING_NANOS = 50_000;

  /** How long an idle consumer still knows how to read the memory that it has worked on. */
  private static final long REMEMBERING_NANOS = 1_000_000_000;

  private volatile StreamTask[] entries = new StreamTask[FIRST_CAPACITY];
  private volatile long enqueued;
  private volatile long finished;
  private volatile boolean closed;
  // The consumer while it sleeps, or null.
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

  /** Says that there will be no more tasks: the consumer ends after those that are pending. */
  void close() {
    closed = true;
    wake();
  }

  boolean closed() {
    return closed;
  }

  /** Consumer: waits for a task and returns it, or null when there will be none. */
  StreamTask await() {
    long since = 0;
    StreamTask task = first();
    while (task == null && !closed) {
      long now = System.nanoTime();
      since = since == 0 ? now : since;
      if (now - since < YIELDING_NANOS) {
        letOthersRun();
      } else {
        sleep(now - since);
      }
      task = first();
    }
    // What was published before the queue was closed may not have been seen before that.
    return task == null ? first() : task;
  }

  /** Sleeps until there may be work, once without what reads the memory of the last. */
  private void sleep(long idleNanos) {
    sleeper = Thread.currentThread();
    if (first() == null && !closed) {
      if (idleNanos < REMEMBERING_NANOS) {
        LockSupport.parkNanos(this, REMEMBERING_NANOS);
      } else {
        MappedViews.forgetOfThread();
        LockSupport.park(this);
      }
    }
    sleeper = null;
    Thread.interrupted();
  }

  @SuppressWarnings("ThreadPriorityCheck") // The point: others may have work for this thread.
  private static void letOthersRun() {
    Thread.yield();
  }

  /** Consumer: returns the first pending task, or null. */
  StreamTask first() {
    long position = finished;
    if (position == enqueued) {
      return null;
    }
    StreamTask[] now = entries;
    return now[(int) position & (now.length - 1)];
  }

  /** Consumer: returns whether there are tasks behind the first one. */
  boolean hasMore() {
    return enqueued - finished > 1;
  }

  /** Consumer: drops the first pending task. */
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
