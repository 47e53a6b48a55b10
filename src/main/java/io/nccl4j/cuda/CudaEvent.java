package io.nccl4j.cuda;

import io.nccl4j.CudaException;
import io.nccl4j.Event;
import io.nccl4j.Platform;
import io.nccl4j.bindings.cudart.cudart_h;
import io.nccl4j.internal.BlockingCalls;
import io.nccl4j.internal.CaptureMode;
import io.nccl4j.internal.CudaResults;
import io.nccl4j.internal.PlatformThreads;
import io.nccl4j.internal.util.Backoff;
import io.nccl4j.internal.util.Deadline;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;

/** An event of the CUDA runtime that can measure time. */
public final class CudaEvent extends Event {
  private final MemorySegment handle;
  private volatile boolean closed;
  private volatile boolean recorded;

  private CudaEvent(MemorySegment handle, int device) {
    super(Platform.CUDA, device);
    this.handle = handle;
  }

  /**
   * Creates an event of a device, for the caller to close. C: {@code cudaEventCreateWithFlags}.
   *
   * @param device the index of the device whose streams will record it, from 0
   * @return the event
   * @throws CudaException if the runtime refuses
   */
  public static CudaEvent create(int device) {
    return new CudaEvent(CudaDevices.on(device, CudaEvent::createHandle), device);
  }

  private static MemorySegment createHandle() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment event = arena.allocate(ValueLayout.ADDRESS);
      int flags = cudart_h.cudaEventDefault();
      CudaResults.check(
          cudart_h.cudaEventCreateWithFlags(event, flags), "cudaEventCreateWithFlags");
      return event.get(ValueLayout.ADDRESS, 0);
    }
  }

  /**
   * {@return the {@code cudaEvent_t}: the way out to other native code} It is valid until this
   * event is closed.
   */
  public long address() {
    return handle.address();
  }

  synchronized void record(MemorySegment stream) {
    checkNotDestroyed();
    CudaResults.check(cudart_h.cudaEventRecord(handle, stream), "cudaEventRecord");
    recorded = true;
  }

  synchronized void waitedForBy(MemorySegment stream) {
    checkNotDestroyed();
    int result = cudart_h.cudaStreamWaitEvent(stream, handle, cudart_h.cudaEventWaitDefault());
    CudaResults.check(result, "cudaStreamWaitEvent");
  }

  /** The lock of those who call this keeps the handle from being destroyed beneath their call. */
  private void checkNotDestroyed() {
    if (closed) {
      throw new IllegalStateException("event was closed while it was in use: " + this);
    }
  }

  @Override
  public boolean open() {
    return !closed;
  }

  @Override
  protected boolean poll() {
    return CudaDevices.on(device(), () -> CaptureMode.relaxed(this::reached));
  }

  private synchronized boolean reached() {
    checkNotDestroyed();
    int result = cudart_h.cudaEventQuery(handle);
    if (result == cudart_h.cudaErrorNotReady()) {
      return false;
    }
    CudaResults.check(result, "cudaEventQuery");
    return true;
  }

  @Override
  protected void await(Duration timeout) {
    if (!CudaDevices.on(device(), () -> CaptureMode.relaxed(() -> completesWithin(timeout)))) {
      throw timedOut("cudaEventQuery", timeout, "the work before " + this);
    }
  }

  private boolean completesWithin(Duration timeout) {
    Backoff backoff = Backoff.betweenQueries(Deadline.after(timeout));
    while (!reached()) {
      if (!BlockingCalls.pause(backoff, "cudaEventQuery")) {
        return false;
      }
    }
    return true;
  }

  @Override
  protected Duration since(Event start) {
    CudaEvent earlier = (CudaEvent) start;
    earlier.checkReached("start");
    checkReached("event");
    return CudaDevices.on(device(), () -> elapsedBetween(earlier));
  }

  private Duration elapsedBetween(CudaEvent earlier) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment milliseconds = arena.allocate(ValueLayout.JAVA_FLOAT);
      int result = cudart_h.cudaEventElapsedTime(milliseconds, earlier.handle, handle);
      CudaResults.check(result, "cudaEventElapsedTime");
      return Duration.ofNanos(Math.round(milliseconds.get(ValueLayout.JAVA_FLOAT, 0) * 1e6));
    }
  }

  private void checkReached(String argument) {
    if (!recorded) {
      throw new IllegalStateException(argument + " was never recorded: " + this);
    }
    if (!poll()) {
      throw new IllegalStateException(argument + " is not complete: " + this);
    }
  }

  @Override
  public synchronized void close() {
    if (!closed) {
      closed = true;
      String function = "cudaEventDestroy";
      Runnable destroy = () -> CudaResults.check(cudart_h.cudaEventDestroy(handle), function);
      PlatformThreads.run(function, () -> CudaDevices.run(device(), destroy));
    }
  }

  @Override
  public String toString() {
    return "CudaEvent[device %d, 0x%x]".formatted(device(), handle.address());
  }
}
