package io.nccl4j.internal.reference.stream;

import io.nccl4j.spi.OperationTrace;

/**
 * The tasks that a stream does for what a span records: the first one begins it and the last one
 * ends it. Who enqueues them counts as one more, until all are there.
 */
final class TracedTasks {
  private final OperationTrace trace;
  private int pending = 1;
  private Throwable failure;

  TracedTasks(OperationTrace trace) {
    this.trace = trace;
  }

  synchronized void add() {
    pending++;
  }

  void begin() {
    trace.begun();
  }

  synchronized void end(Throwable failed) {
    failure = failure == null ? failed : failure;
    trace.finished();
    complete();
  }

  synchronized void allThere() {
    complete();
  }

  private void complete() {
    if (--pending == 0) {
      trace.ended(failure);
    }
  }
}
