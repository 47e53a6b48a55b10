package io.nccl4j.examples.spark;

import io.nccl4j.Communicator;
import org.apache.spark.BarrierTaskContext;
import org.apache.spark.TaskContext;
import org.apache.spark.util.TaskInterruptListener;

/**
 * Ends a rank's waits when Spark kills its task, as it does when another rank has failed. Until the
 * communicator exists it interrupts the thread; afterwards it aborts the communicator, since
 * nothing else ends a collective on a GPU that waits for a lost peer.
 */
final class TaskEnd implements TaskInterruptListener, AutoCloseable {
  private final Thread thread = Thread.currentThread();
  private Communicator communicator;
  private boolean killed;
  private boolean closed;

  private TaskEnd() {}

  /** Watches a task; called in the task's thread. */
  static TaskEnd of(BarrierTaskContext context) {
    TaskEnd end = new TaskEnd();
    context.addTaskInterruptListener(end);
    return end;
  }

  /** Sets the communicator to abort from now on, instead of interrupting the thread. */
  synchronized void aborts(Communicator created) {
    communicator = created;
    if (killed) {
      created.abort();
    }
  }

  /** Called by Spark, in another thread. */
  @Override
  public synchronized void onTaskInterrupted(TaskContext context, String reason) {
    killed = true;
    if (closed) {
      return;
    }
    if (communicator == null) {
      thread.interrupt();
    } else {
      communicator.abort();
    }
  }

  /** Stops watching, since the thread will run other tasks. */
  @Override
  public synchronized void close() {
    closed = true;
  }
}
