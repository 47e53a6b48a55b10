package io.nccl4j.reference;

import io.nccl4j.Span;

/**
 * The tasks that a stream does for what a span records: the first one begins it and the last one
 * ends it. Who enqueues them counts as one more, until all are there.
 */
final class SpanTasks {
  private final Span span;
  private int pending = 1;
  private Throwable failure;

  SpanTasks(Span span) {
    this.span = span;
  }

  synchronized void add() {
    pending++;
  }

  void begin() {
    span.begun();
  }

  synchronized void end(Throwable failed) {
    failure = failure == null ? failed : failure;
    span.finished();
    complete();
  }

  synchronized void allThere() {
    complete();
  }

  private void complete() {
    if (--pending == 0) {
      span.ended(failure);
    }
  }
}
