package io.nccl4j.internal.reference.stream;

import io.nccl4j.spi.OperationTrace;

/**
 * The tasks of a stream that belong to one traced operation. The first task begins the trace and
 * the last one ends it. The enqueuing thread counts as one task until it has enqueued all.
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

  synchronized void allEnqueued() {
    complete();
  }

  private void complete() {
    if (--pending == 0) {
      trace.ended(failure);
    }
  }
}
