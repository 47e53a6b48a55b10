package io.nccl4j.reference;

/**
 * The tasks of one stream, in reused entries. Producers take turns, by a lock of the owner; one
 * consumer takes tasks and says when each is finished.
 *
 * <p>Invariant: {@code finished <= enqueued}; the tasks between them are pending, and the entry of
 * each stays the same object when the queue grows.
 */
final class TaskQueue {
  private static final int FIRST_CAPACITY = 64;

  private volatile Task[] entries = new Task[FIRST_CAPACITY];
  private volatile long enqueued;
  private volatile long finished;

  /** Producer: returns the entry that {@link #publish} will append. */
  Task claim() {
    if (enqueued - finished == entries.length) {
      grow();
    }
    int index = (int) enqueued & (entries.length - 1);
    if (entries[index] == null) {
      entries[index] = new Task();
    }
    return entries[index];
  }

  private void grow() {
    Task[] old = entries;
    Task[] larger = new Task[2 * old.length];
    for (long position = finished; position < enqueued; position++) {
      larger[(int) position & (larger.length - 1)] = old[(int) position & (old.length - 1)];
    }
    entries = larger;
  }

  @SuppressWarnings("NonAtomicVolatileUpdate") // Producers hold the owner's lock.
  void publish() {
    enqueued++;
  }

  /** Consumer: returns the first pending task, or null. */
  Task first() {
    long position = finished;
    if (position == enqueued) {
      return null;
    }
    Task[] now = entries;
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
