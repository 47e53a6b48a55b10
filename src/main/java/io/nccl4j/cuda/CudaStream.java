package io.nccl4j.cuda;

import io.nccl4j.Buffer;
import io.nccl4j.CudaException;
import io.nccl4j.Event;
import io.nccl4j.NcclException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.Platform;
import io.nccl4j.Stream;
import io.nccl4j.bindings.cudart.cudart_h;
import io.nccl4j.internal.Backoff;
import io.nccl4j.internal.CudaResults;
import io.nccl4j.internal.NativeLibrary;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.BooleanSupplier;

/**
 * A stream of the CUDA runtime: one of our own, or one that a framework made.
 *
 * <p>Waiting looks at the stream again and again rather than blocking in the runtime, because only
 * so a wait can end when its time has passed or a collective has failed, whose kernel then never
 * ends by itself.
 */
public final class CudaStream extends Stream {
  private static final int ERROR_LOOK_INTERVAL = 64;

  private final MemorySegment handle;
  private final boolean foreign;
  private final AtomicBoolean closed = new AtomicBoolean();
  private final Staging staging = new Staging(this);
  // Read plainly on the hot path; written once, before the handle goes.
  private boolean open = true;

  private CudaStream(MemorySegment handle, int device, boolean foreign) {
    super(Platform.CUDA, device);
    this.handle = handle;
    this.foreign = foreign;
  }

  /**
   * Creates a stream of a device, for the caller to close. It does not wait for the legacy default
   * stream. C: {@code cudaStreamCreateWithFlags}.
   *
   * @throws CudaException if the runtime refuses
   */
  public static CudaStream create(int device) {
    return new CudaStream(CudaDevices.on(device, CudaStream::createHandle), device, false);
  }

  private static MemorySegment createHandle() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment stream = arena.allocate(ValueLayout.ADDRESS);
      int flags = cudart_h.cudaStreamNonBlocking();
      CudaResults.check(
          cudart_h.cudaStreamCreateWithFlags(stream, flags), "cudaStreamCreateWithFlags");
      return stream.get(ValueLayout.ADDRESS, 0);
    }
  }

  /**
   * Wraps a stream that somebody else made, such as a framework's current one; 0 is the legacy
   * default stream. Closing it frees only what nccl4j added. The owner keeps the stream alive until
   * the wrapper is closed.
   *
   * @param address the {@code cudaStream_t}
   * @param device the device that the stream belongs to
   */
  public static CudaStream ofAddress(long address, int device) {
    NativeLibrary.CUDART.load();
    int devices = CudaDevices.count();
    if (device < 0 || device >= devices) {
      throw new IllegalArgumentException(
          "device is " + device + "; it must be from 0 to " + (devices - 1));
    }
    return new CudaStream(MemorySegment.ofAddress(address), device, true);
  }

  /**
   * Returns the {@code cudaStream_t}: the way out to other native code. It is valid until this
   * stream is closed.
   */
  public long address() {
    return handle.address();
  }

  /** Returns the {@code cudaStream_t} as native calls take it. */
  public MemorySegment pointer() {
    return handle;
  }

  @Override
  public boolean open() {
    return open;
  }

  @Override
  protected void await(Duration timeout) {
    await(this::reached, timeout, "cudaStreamQuery");
    throwFailureOfUsers("cudaStreamQuery");
  }

  /**
   * Waits until something on this stream is reached, or a communicator that uses the stream has
   * failed.
   */
  void await(BooleanSupplier reached, Duration timeout, String function) {
    Backoff backoff = new Backoff(function, timeout);
    int looks = 0;
    while (!reached.getAsBoolean()) {
      if (!backoff.pause()) {
        throw new NcclTimeoutException(function, timeout, "the work on " + this);
      }
      // Asking the communicators is dearer than asking the stream, and a failure can wait a little.
      if (++looks % ERROR_LOOK_INTERVAL == 0) {
        throwFailureOfUsers(function);
      }
    }
  }

  @Override
  protected boolean poll() {
    boolean reached = reached();
    throwFailureOfUsers("cudaStreamQuery");
    return reached;
  }

  /**
   * Returns whether the device has come to the end of this stream, whatever the communicators say.
   * The lock keeps the handle from being destroyed beneath the question.
   */
  private synchronized boolean reached() {
    if (!open) {
      throw new IllegalStateException("stream was closed while it was waited for: " + this);
    }
    int result = cudart_h.cudaStreamQuery(handle);
    if (result == cudart_h.cudaErrorNotReady()) {
      return false;
    }
    CudaResults.check(result, "cudaStreamQuery");
    return true;
  }

  /**
   * Returns what is wrong with this stream or the communicators that use it, or null; for those who
   * must not throw it.
   */
  RuntimeException failure() {
    try {
      poll();
      return null;
    } catch (CudaException | NcclException | IllegalStateException e) {
      return e;
    }
  }

  @Override
  protected CompletionStage<Void> whenComplete() {
    return Completions.of(this);
  }

  @Override
  protected void mark(Event event) {
    ((CudaEvent) event).record(handle);
  }

  @Override
  protected void follow(Event event) {
    ((CudaEvent) event).waitedForBy(handle);
  }

  @Override
  protected void upload(MemorySegment source, Buffer target) {
    staging.upload(source, target);
  }

  @Override
  protected void download(Buffer source, MemorySegment target) {
    staging.download(source, target);
  }

  @Override
  protected void copy(Buffer source, Buffer target) {
    copy(target.pointer(), source.pointer(), source.byteSize());
  }

  void copy(MemorySegment target, MemorySegment source, long bytes) {
    if (bytes > 0) {
      int kind = cudart_h.cudaMemcpyDefault();
      CudaResults.check(
          cudart_h.cudaMemcpyAsync(target, source, bytes, kind, handle), "cudaMemcpyAsync");
    }
  }

  @Override
  protected void fill(Buffer target, byte value) {
    if (target.byteSize() > 0) {
      int result = cudart_h.cudaMemsetAsync(target.pointer(), value, target.byteSize(), handle);
      CudaResults.check(result, "cudaMemsetAsync");
    }
  }

  @Override
  public void close() {
    if (!closed.compareAndSet(false, true)) {
      return;
    }
    staging.close();
    synchronized (this) {
      open = false;
      if (!foreign) {
        CudaResults.check(cudart_h.cudaStreamDestroy(handle), "cudaStreamDestroy");
      }
    }
  }

  @Override
  public String toString() {
    return "CudaStream[device %d, 0x%x%s]"
        .formatted(device(), handle.address(), foreign ? ", foreign" : "");
  }
}
