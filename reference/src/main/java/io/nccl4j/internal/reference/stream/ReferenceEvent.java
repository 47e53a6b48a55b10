package io.nccl4j.internal.reference.stream;

import io.nccl4j.DeviceType;
import io.nccl4j.internal.util.Interrupts;
import io.nccl4j.spi.EventDriver;
import io.nccl4j.spi.TimeoutReport;
import java.time.Duration;

/**
 * An event of the reference backend. It measures time with {@link System#nanoTime}.
 *
 * <p>If work before the record has failed, and {@code synchronize} has not reported the failure,
 * the event reports it, and so does every stream that waits for the event.
 */
public final class ReferenceEvent implements EventDriver {
  private final int device;
  private volatile EventRecord last;
  private volatile boolean closed;

  public ReferenceEvent(int device) {
    this.device = device;
  }

  void setRecord(EventRecord record) {
    last = record;
  }

  /** Returns the last record, or null. */
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
        throw late.timedOut("synchronize", timeout, "the last record of " + this);
      }
    } catch (InterruptedException e) {
      throw Interrupts.cancelled("synchronize");
    }
    checked(record);
  }

  private static EventRecord checked(EventRecord record) {
    Throwable failure = record.failure();
    if (failure != null) {
      throw ReferenceStream.typed(failure);
    }
    return record;
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
