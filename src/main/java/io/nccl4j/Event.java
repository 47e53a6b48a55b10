package io.nccl4j;

import io.nccl4j.internal.util.Arguments;
import io.nccl4j.spi.EventDriver;
import java.time.Duration;
import java.util.Objects;

/**
 * A mark in a stream, for other streams and the host to wait for, and to measure time between.
 *
 * <p>Events come from {@link Communicator#newEvent} and {@link Backend#newEvent} and belong to the
 * code that made them. Any thread may use one. It can be recorded again; then only the last mark
 * counts.
 */
public final class Event implements AutoCloseable {
  /** How far a stream had come when it recorded an event. */
  record Recording(StreamFence fence, long value) {}

  private final DeviceType deviceType;
  private final int device;
  private final EventDriver driver;
  private volatile Recording record;

  Event(DeviceType platform, int device, EventDriver driver) {
    this.deviceType = platform;
    this.device = device;
    this.driver = driver;
  }

  /** {@return the platform of the event's backend} */
  public DeviceType deviceType() {
    return deviceType;
  }

  /** {@return the device whose streams can record this event} */
  public int device() {
    return device;
  }

  /** {@return whether the event has not been closed} */
  public boolean isOpen() {
    return driver.isOpen();
  }

  /**
   * {@return whether the last recorded mark has been reached; true if there is none} C: {@code
   * cudaEventQuery}.
   *
   * @throws NcclException if a collective before the mark failed and the device knows: GPUs do not,
   *     so ask the stream
   * @throws CudaException if work before the mark failed
   * @throws IllegalStateException if the event is closed
   */
  public boolean isComplete() {
    checkOpen("event");
    Recording asked = record;
    boolean complete = driver.isComplete();
    if (complete) {
      passed(asked);
    }
    return complete;
  }

  /**
   * Waits until the last recorded mark has been reached. C: {@code cudaEventQuery}, repeated.
   *
   * @param timeout the maximum time to wait; positive
   * @throws NcclTimeoutException if the timeout expires
   * @throws NcclException as {@link #isComplete} does
   * @throws CudaException if work before the mark failed
   * @throws IllegalStateException if the event is closed
   * @throws java.util.concurrent.CancellationException if the waiting thread is interrupted; its
   *     interrupt status stays set
   * @throws IllegalArgumentException if the timeout is not positive
   */
  public void synchronize(Duration timeout) {
    Arguments.positive(timeout, "timeout");
    checkOpen("event");
    Recording asked = record;
    driver.await(timeout, this::timedOut);
    passed(asked);
  }

  /** Learns which stream has recorded this event, and where; null while one is about to. */
  void setRecord(Recording mark) {
    record = mark;
  }

  /** Returns what was recorded last, or null. */
  Recording record() {
    return record;
  }

  /** Tells the stream of a mark that was asked for, if it was not replaced during the answer. */
  private void passed(Recording asked) {
    if (asked != null && asked.equals(record)) {
      asked.fence().passed(asked.value());
    }
  }

  /**
   * {@return the time between an earlier event's mark and this one's, as the device saw it} CUDA
   * resolves about half a microsecond. C: {@code cudaEventElapsedTime}.
   *
   * @param start an event of the same device, recorded and complete
   * @throws IllegalArgumentException if the event is of another device or backend
   * @throws IllegalStateException if either event is closed, was never recorded, or is not complete
   * @throws CudaException if work before either mark failed on the GPU
   */
  public Duration elapsedSince(Event start) {
    Objects.requireNonNull(start, "start");
    checkOpen("event");
    start.checkOpen("start");
    if (start.deviceType != deviceType || start.device != device) {
      throw new IllegalArgumentException(
          "start is " + start + "; it must be of the same backend and device as " + this);
    }
    return driver.since(start.driver);
  }

  private void checkOpen(String argument) {
    if (!isOpen()) {
      throw new IllegalStateException(argument + " is closed: " + this);
    }
  }

  /** Returns what a wait throws that was too long: it names the communicators on the stream. */
  private NcclException timedOut(String function, Duration timeout, String waitedFor) {
    Recording by = record;
    Stream stream = by == null ? null : by.fence().stream();
    return stream == null
        ? new NcclTimeoutException(function, timeout, waitedFor)
        : stream.timedOut(function, timeout, waitedFor);
  }

  EventDriver driver() {
    return driver;
  }

  /**
   * Releases the event. Idempotent; waits that are enqueued stay valid. C: {@code
   * cudaEventDestroy}.
   *
   * @throws CudaException if the CUDA runtime reports an error
   */
  @Override
  public void close() {
    driver.close();
  }

  @Override
  public String toString() {
    return driver.toString();
  }
}
