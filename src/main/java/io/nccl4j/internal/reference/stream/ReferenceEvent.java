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
    EventRecord record = new EventRecord();
    last = record;
    return record;
  }

  /** Returns the last recorded mark, or null. */
  EventRecord record() {
    return last;
  }

  @Override
  public boolean isOpen() {
    return !closed;
  }

  @Override
  public boolean isComplete() {
    EventRecord record = last;
    return record == null || (record.reached() && checked(record) != null);
  }

  @Override
  public void await(Duration timeout, TimeoutReport late) {
    EventRecord record = last;
    if (record == null) {
      return;
    }
    try {
      if (!record.await(timeout)) {
        throw late.timedOut("synchronize", timeout, "the last mark of " + this);
      }
    } catch (InterruptedException e) {
      throw Interrupts.cancelled("synchronize");
    }
    checked(record);
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
    EventRecord record = event.last;
    if (record == null || !record.reached()) {
      throw new IllegalStateException(
          (record == null ? "never recorded: " : "not complete yet: ") + event);
    }
    return record;
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
