package io.nccl4j;

import io.nccl4j.internal.util.Arguments;
import io.nccl4j.spi.EventDriver;
import java.time.Duration;
import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.NullMarked;
import org.jspecify.annotations.Nullable;

/**
 * A point in the work of a stream that other streams and the host can wait for, and that can be
 * used to measure time.
 *
 * {@snippet :
 * try (Event copied = comm.newEvent()) {
 *   gradients.copyFromAsync(values, copyStream);
 *   copyStream.record(copied);
 *   stream.waitFor(copied);
 *   comm.allReduce(gradients, gradients, ReduceOp.SUM, stream);
 * }
 * }
 *
 * <p>{@link Communicator#newEvent} and {@link Backend#newEvent} create events; the caller owns and
 * closes them. Any thread may use an event. An event can be recorded again; then only the last
 * recording counts.
 */
@NullMarked
public final class Event implements AutoCloseable {
  /**
   * The progress value of a stream when it recorded an event.
   *
   * @param collectives the progress value of the last collective of each stream that the recording
   *     waits for
   */
  record Recording(StreamProgress progress, long value, Map<StreamProgress, Long> collectives) {}

  private final DeviceType deviceType;
  private final int device;
  private final EventDriver driver;
  private volatile @Nullable Recording record;

  Event(DeviceType deviceType, int device, EventDriver driver) {
    this.deviceType = deviceType;
    this.device = device;
    this.driver = driver;
  }

  /** {@return the type of the event's device} */
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
   * {@return whether the last recording has completed; true if there is none} C: {@code
   * cudaEventQuery}.
   *
   * @throws NcclException if a collective before the recording failed and the device reports it.
   *     GPUs do not report it; query the stream instead
   * @throws CudaException if work before the recording failed
   * @throws IllegalStateException if the event is closed
   */
  public boolean isComplete() {
    checkOpen("event");
    Recording queried = record;
    boolean complete = driver.isComplete();
    if (complete) {
      passed(queried);
    }
    return complete;
  }

  /**
   * Waits until the last recording has completed. C: {@code cudaEventQuery}, repeated.
   *
   * @param timeout the maximum time to wait; positive. On NCCL the exception may come up to 5 s
   *     later, since its RAS service is asked which ranks are late.
   * @throws NcclTimeoutException if the timeout expires
   * @throws NcclException as {@link #isComplete} does
   * @throws CudaException if work before the recording failed
   * @throws IllegalStateException if the event is closed
   * @throws java.util.concurrent.CancellationException if the waiting thread is interrupted; its
   *     interrupt status stays set
   * @throws IllegalArgumentException if the timeout is not positive
   */
  public void synchronize(Duration timeout) {
    Arguments.positive(timeout, "timeout");
    checkOpen("event");
    Recording queried = record;
    Statistics.waiting(() -> driver.await(timeout, this::timedOut));
    passed(queried);
  }

  /** Sets the last recording; null while a stream is about to record this event. */
  void setRecord(@Nullable Recording recording) {
    record = recording;
  }

  /** Returns the last recording, or null. */
  @Nullable Recording record() {
    return record;
  }

  /**
   * Reports a completed recording to its stream's progress, unless it was replaced during the
   * query.
   */
  private void passed(@Nullable Recording queried) {
    if (queried != null && queried.equals(record)) {
      queried.progress().markPassed(queried.value());
    }
  }

  /**
   * {@return the time between the recording of an earlier event and of this one, measured by the
   * device} The resolution on CUDA is about half a microsecond. C: {@code cudaEventElapsedTime}.
   *
   * @param start an event of the same device, recorded and complete
   * @throws IllegalArgumentException if the event is of another device or backend
   * @throws IllegalStateException if either event is closed, was never recorded, or is not complete
   * @throws CudaException if work before either recording failed on the GPU
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

  /**
   * Returns the exception of a wait that timed out; it names the communicators that use the stream.
   */
  private NcclException timedOut(String function, Duration timeout, String waitedFor) {
    Recording last = record;
    Stream stream = last == null ? null : last.progress().stream();
    return stream == null
        ? new NcclTimeoutException(function, timeout, waitedFor)
        : stream.timedOut(function, timeout, waitedFor);
  }

  EventDriver driver() {
    return driver;
  }

  /**
   * Releases the event. Idempotent; enqueued waits stay valid. C: {@code cudaEventDestroy}.
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
