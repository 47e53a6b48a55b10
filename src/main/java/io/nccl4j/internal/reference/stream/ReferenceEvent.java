package io.nccl4j.internal.reference.stream;

import io.nccl4j.DeviceType;
import io.nccl4j.internal.util.Interrupts;
import io.nccl4j.spi.EventDriver;
import io.nccl4j.spi.TimeoutReport;
import java.time.Duration;

/**
 * An event of the reference backend, which measures with {@link System#nanoTime}.
 *
 * <p>If work before the mark had failed and nobody had been told by {@code synchronize}, the event
 * reports that failure, and so does every stream that waits for it.
 */
public final class ReferenceEvent implements EventDriver {
  private final int device;
  private volatile EventRecord last;
  private volatile boolean closed;

  public ReferenceEvent(int device) {
    this.device = device;
  }

  /** Replaces the last mark by one that is yet to be reached. */
  EventRecord newRecord() {
    EventRecord mark = new EventRecord();
    last = mark;
    return mark;
  }

  /** Returns the last recorded mark, or null. */
  EventRecord record() {
    return last;
  }

  @Override
  public boolean open() {
    return !closed;
  }

  @Override
  public boolean isComplete() {
    EventRecord mark = last;
    return mark == null || (mark.reached() && checked(mark) != null);
  }

  @Override
  public void await(Duration timeout, TimeoutReport late) {
    EventRecord mark = last;
    if (mark == null) {
      return;
    }
    try {
      if (!mark.await(timeout)) {
        throw late.timedOut("synchronize", timeout, "the last mark of " + this);
      }
    } catch (InterruptedException e) {
      throw Interrupts.cancelled("synchronize");
    }
    checked(mark);
  }

  private static EventRecord checked(EventRecord mark) {
    Throwable failure = mark.failure();
    if (failure != null) {
      throw ReferenceStream.typed(failure);
    }
    return mark;
  }

  @Override
  public Duration since(EventDriver start) {
    return Duration.ofNanos(completed(this).nanos() - completed((ReferenceEvent) start).nanos());
  }

  private static EventRecord completed(ReferenceEvent event) {
    EventRecord mark = event.last;
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
    return "Event[" + DeviceType.HOST + " device " + device + (closed ? ", closed]" : "]");
  }
}
