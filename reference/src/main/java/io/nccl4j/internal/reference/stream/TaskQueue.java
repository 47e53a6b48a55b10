package io.nccl4j.internal.reference.stream;

import io.nccl4j.internal.util.Deadline;
import io.nccl4j.spi.PendingLaunch;
import java.util.ArrayDeque;

/**
 * The task queue of one stream. Any thread appends tasks; one consumer runs and finishes them in
 * order. The consumer references the stream only through pending tasks, so a stream that becomes
 * unreachable without being closed can be garbage collected once its work is done.
 *
 * <p>A thread that holds the monitor of a queue keeps other threads from appending.
 */
final class TaskQueue {
  private final ArrayDeque<StreamTask> pending = new ArrayDeque<>();
  private long finished;
  // The least number of finished tasks that a thread waits for.
  private long wakeAt = Long.MAX_VALUE;
  private boolean closed;

  /** A launch whose tasks are followed, with the numbers of its first and its last task. */
  private record Followed(long first, long last, PendingLaunch launch) {}

  private final ArrayDeque<Followed> followed = new ArrayDeque<>();
  // The last task that any launch has followed.
  private long lastFollowed;
  // The number of tasks that have run, one more than finished while one is reported.
  private long run;
  private long lastFailed;

  /** Appends a task; returns the number of tasks that were appended until now. */
  synchronized long add(StreamTask task) {
    pending.add(task);
    notifyAll();
    return enqueued();
  }

  /** Closes the queue to new tasks; the consumer ends after the pending ones. */
  synchronized void close() {
    closed = true;
    notifyAll();
  }

  synchronized boolean closed() {
    return closed;
  }

  /** Consumer: waits for a task and returns it, or null if the queue is closed and empty. */
  synchronized StreamTask await() {
    while (pending.isEmpty() && !closed) {
      try {
        wait();
      } catch (InterruptedException e) {
        // No code interrupts a stream's thread on purpose.
      }
    }
    return pending.peek();
  }

  /** Consumer: finishes the first pending task. */
  synchronized void finish() {
    pending.remove();
    finished++;
    if (finished >= wakeAt) {
      wakeAt = Long.MAX_VALUE;
      notifyAll();
    }
  }

  /** Follows the tasks that were appended since the last call. */
  void follow(PendingLaunch launch) {
    boolean hasRun;
    boolean failed;
    synchronized (this) {
      Followed tasks = new Followed(lastFollowed + 1, enqueued(), launch);
      lastFollowed = tasks.last;
      hasRun = run >= tasks.last;
      failed = lastFailed >= tasks.first;
      if (!hasRun) {
        followed.add(tasks);
      }
    }
    if (hasRun) {
      report(launch, failed);
    }
  }

  /** Consumer: reports to the launches whose last task has run, just before it finishes. */
  void reportRun(boolean taskFailed) {
    synchronized (this) {
      run = finished + 1;
      lastFailed = taskFailed ? run : lastFailed;
    }
    Followed next = nextRun();
    while (next != null) {
      report(next.launch, lastFailed >= next.first);
      next = nextRun();
    }
  }

  private synchronized Followed nextRun() {
    Followed next = followed.peek();
    return next != null && next.last <= run ? followed.remove() : null;
  }

  private static void report(PendingLaunch launch, boolean failed) {
    if (failed) {
      launch.failed();
    } else {
      launch.completed(System.nanoTime());
    }
  }

  synchronized long enqueued() {
    return finished + pending.size();
  }

  synchronized boolean idle() {
    return pending.isEmpty();
  }

  /**
   * Waits until a number of tasks have finished; returns how many of them have not.
   *
   * @throws InterruptedException if the thread was interrupted
   */
  synchronized long awaitFinished(long target, Deadline deadline) throws InterruptedException {
    while (finished < target && !deadline.passed()) {
      wakeAt = Math.min(wakeAt, target);
      wait(deadline.remainingMillis());
    }
    return Math.max(0, target - finished);
  }
}
