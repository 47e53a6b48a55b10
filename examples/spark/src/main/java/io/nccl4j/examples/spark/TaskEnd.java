package io.nccl4j.examples.spark;

import io.nccl4j.Communicator;
import org.apache.spark.BarrierTaskContext;
import org.apache.spark.TaskContext;
import org.apache.spark.util.TaskInterruptListener;

/**
 * Ends a rank's waits when Spark kills its task, as it does when another rank has failed: while the
 * communicator is made by an interrupt, and from then on by an abort, since a collective on a GPU
 * that waits for a lost peer ends by nothing else.
 */
final class TaskEnd implements TaskInterruptListener, AutoCloseable {
  private final Thread thread = Thread.currentThread();
  private Communicator communicator;
  private boolean killed;
  private boolean over;

  private TaskEnd() {}

  /** Watches over a task; called in its thread. */
  static TaskEnd of(BarrierTaskContext context) {
    TaskEnd end = new TaskEnd();
    context.addTaskInterruptListener(end);
    return end;
  }

  /** Says that the communicator is made, so that it is what has to end. */
  synchronized void aborts(Communicator made) {
    communicator = made;
    if (killed) {
      made.abort();
    }
  }

  /** Called by Spark, in a thread of its own. */
  @Override
  public synchronized void onTaskInterrupted(TaskContext context, String reason) {
    killed = true;
    if (over) {
      return;
    }
    if (communicator == null) {
      thread.interrupt();
    } else {
      communicator.abort();
    }
  }

  /** Lets the thread, which is to run other tasks, alone. */
  @Override
  public synchronized void close() {
    over = true;
  }
}
