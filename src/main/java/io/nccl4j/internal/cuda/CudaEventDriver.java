package io.nccl4j.internal.cuda;

import io.nccl4j.bindings.cudart.cudart_h;
import io.nccl4j.internal.ffm.BlockingCalls;
import io.nccl4j.internal.ffm.PlatformThreads;
import io.nccl4j.internal.util.Backoff;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.spi.EventDriver;
import io.nccl4j.spi.TimeoutReport;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Supplier;

/** A CUDA event. */
public final class CudaEventDriver implements EventDriver {
  private final int device;
  private final MemorySegment handle;
  private final HandleGuard guard = new HandleGuard(this, "event");
  private final AtomicBoolean closing = new AtomicBoolean();
  private volatile boolean recorded;

  private CudaEventDriver(MemorySegment handle, int device) {
    this.device = device;
    this.handle = handle;
  }

  /** Creates an event on a device, whose time can be measured. */
  public static CudaEventDriver create(int device) {
    return create(device, cudart_h.cudaEventDefault());
  }

  /** Creates an event on a device that only orders work, which costs the device less. */
  static CudaEventDriver createWithoutTiming(int device) {
    return create(device, cudart_h.cudaEventDisableTiming());
  }

  private static CudaEventDriver create(int device, int flags) {
    return new CudaEventDriver(CurrentDevice.call(device, () -> createHandle(flags)), device);
  }

  private static MemorySegment createHandle(int flags) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment event = arena.allocate(ValueLayout.ADDRESS);
      CudaResults.check(
          cudart_h.cudaEventCreateWithFlags(event, flags), "cudaEventCreateWithFlags");
      return event.get(ValueLayout.ADDRESS, 0);
    }
  }

  /** Returns the {@code cudaEvent_t}. */
  public long address() {
    return handle.address();
  }

  /** Records the event at the end of the work enqueued on a stream; returns CUDA's result. */
  int record(MemorySegment stream) {
    int result = guard.call(() -> cudart_h.cudaEventRecord(handle, stream));
    recorded |= result == cudart_h.cudaSuccess();
    return result;
  }

  /** Makes a stream wait for the last recording; returns CUDA's result. */
  int waitedForBy(MemorySegment stream) {
    int flags = cudart_h.cudaEventWaitDefault();
    return guard.call(() -> cudart_h.cudaStreamWaitEvent(stream, handle, flags));
  }

  @Override
  public boolean isOpen() {
    return !closing.get();
  }

  @Override
  public boolean isComplete() {
    return CaptureMode.relaxed(device, this::reached);
  }

  /** Returns whether the last recording was reached; called in relaxed capture mode. */
  boolean reached() {
    int result = guard.call(() -> cudart_h.cudaEventQuery(handle));
    if (result == cudart_h.cudaErrorNotReady()) {
      CudaResults.forget(result);
      return false;
    }
    CudaResults.check(result, "cudaEventQuery");
    return true;
  }

  @Override
  public void await(Duration timeout, TimeoutReport late) {
    if (!CaptureMode.relaxed(device, () -> completesWithin(timeout))) {
      throw late.timedOut("cudaEventQuery", timeout, "the work before " + this);
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
  public Duration since(EventDriver start) {
    CudaEventDriver earlier = (CudaEventDriver) start;
    earlier.checkReached("start");
    checkReached("event");
    return CurrentDevice.call(device, () -> elapsedBetween(earlier));
  }

  private Duration elapsedBetween(CudaEventDriver earlier) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment milliseconds = arena.allocate(ValueLayout.JAVA_FLOAT);
      Supplier<Integer> measure =
          () -> cudart_h.cudaEventElapsedTime(milliseconds, earlier.handle, handle);
      CudaResults.check(guard.call(() -> earlier.guard.call(measure)), "cudaEventElapsedTime");
      return Duration.ofNanos(Math.round(milliseconds.get(ValueLayout.JAVA_FLOAT, 0) * 1e6));
    }
  }

  private void checkReached(String argument) {
    if (!recorded) {
      throw new IllegalStateException(argument + " was never recorded: " + this);
    }
    if (!isComplete()) {
      throw new IllegalStateException(argument + " is not complete: " + this);
    }
  }

  @Override
  public void close() {
    if (closing.compareAndSet(false, true)) {
      String function = "cudaEventDestroy";
      Runnable destroy = () -> CudaResults.check(cudart_h.cudaEventDestroy(handle), function);
      guard.end(() -> PlatformThreads.run(function, () -> CurrentDevice.run(device, destroy)));
    }
  }

  @Override
  public String toString() {
    return "CudaEvent[device %d, 0x%x]".formatted(device, handle.address());
  }
}
