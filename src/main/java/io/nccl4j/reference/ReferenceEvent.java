package io.nccl4j.reference;

import io.nccl4j.Event;
import io.nccl4j.Platform;
import io.nccl4j.internal.util.Interrupts;
import java.time.Duration;

/**
 * An event of the reference backend, which measures with {@link System#nanoTime}.
 *
 * <p>If work before the mark had failed and nobody had been told by {@code synchronize}, the event
 * reports that failure, and so does every stream that waits for it.
 */
public final class ReferenceEvent extends Event {
  private volatile Mark last;
  private volatile boolean closed;

  ReferenceEvent(int device) {
    super(Platform.HOST, device);
  }

  /** Replaces the last mark by one that is yet to be reached. */
  Mark newMark() {
    Mark mark = new Mark();
    last = mark;
    return mark;
  }

  /** Returns the last recorded mark, or null. */
  Mark mark() {
    return last;
  }

  @Override
  public boolean open() {
    return !closed;
  }

  @Override
  protected boolean poll() {
    Mark mark = last;
    return mark == null || (mark.reached() && checked(mark) != null);
  }

  @Override
  protected void await(Duration timeout) {
    Mark mark = last;
    if (mark == null) {
      return;
    }
    try {
      if (!mark.await(timeout)) {
        throw timedOut("synchronize", timeout, "the last mark of " + this);
      }
    } catch (InterruptedException e) {
      throw Interrupts.cancelled("synchronize");
    }
    checked(mark);
  }

  private static Mark checked(Mark mark) {
    Throwable failure = mark.failure();
    if (failure != null) {
      throw ReferenceStream.typed(failure);
    }
    return mark;
  }

  @Override
  protected Duration since(Event start) {
    return Duration.ofNanos(completed(this).nanos() - completed((ReferenceEvent) start).nanos());
  }

  private static Mark completed(ReferenceEvent event) {
    Mark mark = event.last;
    if (mark == null || !mark.reached()) {
      throw new IllegalStateException(
          (mark == null ? "never recorded: " : "not complete yet: ") + event);
    }
    return mark;
  }

  @Override
  public void close() {
    closed = true;
  }

  @Override
  public String toString() {
    return "Event[" + platform() + " device " + device() + (closed ? ", closed]" : "]");
  }
}
