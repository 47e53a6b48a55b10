package io.nccl4j.internal.cuda;

import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.CudaException;
import io.nccl4j.NcclException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.bindings.cudart.cudart_h;
import io.nccl4j.internal.BlockingCalls;
import io.nccl4j.internal.CaptureMode;
import io.nccl4j.internal.CudaResults;
import io.nccl4j.internal.PlatformThreads;
import io.nccl4j.internal.util.Backoff;
import io.nccl4j.internal.util.CloseAll;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.spi.BufferMemory;
import io.nccl4j.spi.EventDriver;
import io.nccl4j.spi.GraphDriver;
import io.nccl4j.spi.OperationTrace;
import io.nccl4j.spi.StreamContext;
import io.nccl4j.spi.StreamDriver;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletionStage;
import java.util.function.BooleanSupplier;
import java.util.function.IntSupplier;
import java.util.function.Supplier;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * A stream of the CUDA runtime: one of our own, or one that a framework made.
 *
 * <p>Waiting looks at the stream again and again rather than blocking in the runtime, because only
 * so a wait can end when its time has passed or a collective has failed, whose kernel then never
 * ends by itself.
 */
public final class CudaStreamDriver implements StreamDriver {
  private static final Logger LOG = LogManager.getLogger(CudaStreamDriver.class);
  private static final int ERROR_LOOK_INTERVAL = 64;
  private static final Duration ABORT_TIMEOUT = Duration.ofSeconds(5);

  private final MemorySegment handle;
  private final long address;
  private final int device;
  private final StreamContext users;
  private final boolean foreign;
  private final StagingBuffers staging = new StagingBuffers(this);
  private boolean destroyed;
  // When the last recorded span was over: as far as is known, the next one did not begin before.
  private volatile long lastSpanOver = System.nanoTime();

  private CudaStreamDriver(MemorySegment handle, int device, StreamContext users, boolean foreign) {
    this.handle = handle;
    this.address = handle.address();
    this.device = device;
    this.users = users;
    this.foreign = foreign;
  }

  /** Creates a stream of a device. */
  public static CudaStreamDriver create(int device, StreamContext users) {
    MemorySegment handle = CurrentDevice.call(device, CudaStreamDriver::createHandle);
    return new CudaStreamDriver(handle, device, users, false);
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

  /** Stands for a stream that other code owns. */
  public static CudaStreamDriver ofAddress(long address, int device, StreamContext users) {
    return new CudaStreamDriver(MemorySegment.ofAddress(address), device, users, true);
  }

  /** Returns the {@code cudaStream_t}. */
  public long address() {
    return address;
  }

  /** Returns the {@code cudaStream_t} as native calls take it, a pointer of the global scope. */
  public MemorySegment pointer() {
    return handle;
  }

  int device() {
    return device;
  }

  @Override
  public void await(Duration timeout) {
    try {
      await(this::reached, Deadline.after(timeout), "cudaStreamQuery");
    } catch (CudaException failure) {
      throw withFailureOfUsers(failure);
    }
    users.throwFailure("cudaStreamQuery");
  }

  /** Adds to a failure of the device what the communicators say, since theirs may be the cause. */
  private CudaException withFailureOfUsers(CudaException failure) {
    try {
      users.throwFailure("cudaStreamQuery");
    } catch (NcclException another) {
      CloseAll.suppress(failure, another);
    }
    return failure;
  }

  /**
   * Waits until something on this stream is reached, or a communicator that uses the stream has
   * failed.
   */
  void await(BooleanSupplier reached, Deadline deadline, String function) {
    await(reached, deadline, function, true);
  }

  private void await(
      BooleanSupplier reached, Deadline deadline, String function, boolean asksUsers) {
    relaxed(
        () -> {
          awaitOnDevice(reached, deadline, function, asksUsers);
          return null;
        });
  }

  private void awaitOnDevice(
      BooleanSupplier reached, Deadline deadline, String function, boolean asksUsers) {
    Backoff backoff = Backoff.betweenQueries(deadline);
    int looks = 0;
    while (!reached.getAsBoolean()) {
      if (!BlockingCalls.pause(backoff, function)) {
        throw users.timedOut(function, deadline.timeout(), "the work on " + this);
      }
      // Asking the communicators is dearer than asking the stream, and a failure can wait a little.
      if (asksUsers && ++looks % ERROR_LOOK_INTERVAL == 0) {
        users.throwFailure(function);
      }
    }
  }

  @Override
  public void drain(Duration timeout) {
    String function = "cudaStreamQuery";
    PlatformThreads.run(
        function,
        () ->
            BlockingCalls.uninterrupted(
                timeout, limit -> await(this::ended, limit, function, false)));
  }

  @Override
  public boolean isComplete() {
    boolean reached;
    try {
      reached = relaxed(this::reached);
    } catch (CudaException failure) {
      throw withFailureOfUsers(failure);
    }
    users.throwFailure("cudaStreamQuery");
    return reached;
  }

  @Override
  public boolean idle() {
    return PlatformThreads.call("cudaStreamQuery", () -> relaxed(this::ended));
  }

  /** Asks something of the device without a part in captures, this thread's own included. */
  private <T> T relaxed(Supplier<T> question) {
    return CurrentDevice.call(device, () -> CaptureMode.relaxed(question));
  }

  @Override
  public boolean foreign() {
    return foreign;
  }

  /**
   * Returns whether the device has come to the end of this stream, whatever the communicators say.
   * The lock keeps the handle from being destroyed beneath the question.
   */
  private synchronized boolean reached() {
    checkNotDestroyed();
    int result = cudart_h.cudaStreamQuery(handle);
    if (result == cudart_h.cudaErrorNotReady()) {
      return false;
    }
    CudaResults.check(result, "cudaStreamQuery");
    return true;
  }

  private void checkNotDestroyed() {
    if (destroyed) {
      throw new IllegalStateException("stream was closed while it was in use: " + this);
    }
  }

  /** Makes a call that takes the handle: with its device current, and not while it is destroyed. */
  private void call(String function, IntSupplier nativeCall) {
    CurrentDevice.run(
        device,
        () -> {
          synchronized (this) {
            checkNotDestroyed();
            CudaResults.check(nativeCall.getAsInt(), function);
          }
        });
  }

  /**
   * Returns what is wrong with this stream or the communicators that use it, or null; for those who
   * must not throw it. A closed stream came to its end.
   */
  RuntimeException failure() {
    try {
      if (!destroyed()) {
        isComplete();
      }
      return null;
    } catch (IllegalStateException destroyedMeanwhile) {
      return destroyed() ? null : destroyedMeanwhile;
    } catch (RuntimeException failure) {
      return failure;
    }
  }

  /** Returns what a completion ends with that has not come in time. */
  NcclException lateCompletion() {
    return users.timedOut("cudaLaunchHostFunc", DEFAULT_TIMEOUT, "the work on " + this);
  }

  /** Returns what is wrong with the communicators that use this stream, or null. */
  RuntimeException failureOfUsers() {
    try {
      users.throwFailure("cudaLaunchHostFunc");
      return null;
    } catch (RuntimeException failure) {
      return failure;
    }
  }

  private synchronized boolean destroyed() {
    return destroyed;
  }

  /** Returns whether the stream has come to its end, or is gone: nobody can wait for it then. */
  private synchronized boolean ended() {
    return destroyed || reached();
  }

  @Override
  public CompletionStage<Void> completion() {
    return CompletionCallbacks.of(this);
  }

  void callBack(MemorySegment function, long argument) {
    MemorySegment data = MemorySegment.ofAddress(argument);
    call("cudaLaunchHostFunc", () -> cudart_h.cudaLaunchHostFunc(handle, function, data));
  }

  @Override
  public void trace(OperationTrace trace, Runnable launch) {
    launch.run();
    try {
      if (!capturing()) {
        CompletionCallbacks.traceWhenReached(this, trace);
      }
    } catch (RuntimeException failure) {
      // The operations are launched, so the caller must not take this for a refusal of theirs.
      LOG.warn("{}: nobody will tell a recording when its operations have ended", this, failure);
      trace.ended(failure);
    }
  }

  /**
   * Returns whether the stream is being captured, be it by somebody who has not said so here. One
   * that is gone is not. An error is for the next call to find.
   */
  boolean capturing() {
    return CurrentDevice.call(
        device,
        () -> {
          synchronized (this) {
            return !destroyed && askWhetherCapturing();
          }
        });
  }

  private boolean askWhetherCapturing() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment status = arena.allocate(ValueLayout.JAVA_INT);
      int result = cudart_h.cudaStreamIsCapturing(handle, status);
      // The legacy stream, which would join the capture of another one.
      return result == cudart_h.cudaErrorStreamCaptureImplicit()
          || status.get(ValueLayout.JAVA_INT, 0) != cudart_h.cudaStreamCaptureStatusNone();
    }
  }

  /** Tells a span that the device has just come to its end. */
  void reached(OperationTrace trace) {
    trace.begunSince(lastSpanOver);
    lastSpanOver = trace.finished();
  }

  @Override
  public void record(EventDriver event) {
    CurrentDevice.run(device, () -> ((CudaEventDriver) event).record(handle));
  }

  @Override
  public void waitFor(EventDriver event) {
    CurrentDevice.run(device, () -> ((CudaEventDriver) event).waitedForBy(handle));
  }

  @Override
  public void upload(MemorySegment source, BufferMemory target) {
    staging.upload(source, target);
  }

  @Override
  public void download(BufferMemory source, MemorySegment target) {
    staging.download(source, target);
  }

  @Override
  public void copy(BufferMemory source, BufferMemory target) {
    copy(target.pointer(), source.pointer(), source.byteSize());
  }

  void copy(MemorySegment target, MemorySegment source, long bytes) {
    if (bytes > 0) {
      int kind = cudart_h.cudaMemcpyDefault();
      call("cudaMemcpyAsync", () -> cudart_h.cudaMemcpyAsync(target, source, bytes, kind, handle));
    }
  }

  @Override
  public void fill(BufferMemory target, byte value) {
    MemorySegment memory = target.pointer();
    long bytes = target.byteSize();
    if (bytes > 0) {
      call("cudaMemsetAsync", () -> cudart_h.cudaMemsetAsync(memory, value, bytes, handle));
    }
  }

  @Override
  public boolean capturesNatively() {
    return true;
  }

  @Override
  public void beginCapture() {
    // Other threads go on with what is not allowed in a capture, such as allocating.
    int mode = cudart_h.cudaStreamCaptureModeThreadLocal();
    call("cudaStreamBeginCapture", () -> cudart_h.cudaStreamBeginCapture(handle, mode));
  }

  @Override
  public GraphDriver endCapture() {
    return CudaGraphDriver.instantiate(device, captured());
  }

  @Override
  public void dropCapture() {
    try {
      CurrentDevice.run(device, () -> CudaGraphDriver.destroy(captured()));
    } catch (CudaException e) {
      // The capture was dropped for an error of its own, which comes out; CUDA repeats it here.
      LOG.debug("{}: the capture was invalid already", this, e);
    }
  }

  private MemorySegment captured() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment graph = arena.allocate(ValueLayout.ADDRESS);
      call("cudaStreamEndCapture", () -> cudart_h.cudaStreamEndCapture(handle, graph));
      return graph.get(ValueLayout.ADDRESS, 0);
    }
  }

  void launch(MemorySegment graph) {
    call("cudaGraphLaunch", () -> cudart_h.cudaGraphLaunch(graph, handle));
  }

  @Override
  public void release() {
    PlatformThreads.run("cudaStreamDestroy", this::finishAndDestroy);
  }

  private void finishAndDestroy() {
    RuntimeException stuck = finish();
    if (stuck != null) {
      users.markStranded();
      CompletionCallbacks.fail(this, stuck);
    }
    // The reason first: after an error of the device whatever follows may fail for the same.
    CloseAll.all(
        List.of(() -> throwUnreported(stuck), () -> staging.close(stuck == null), this::destroy));
  }

  private static void throwUnreported(RuntimeException stuck) {
    // What a communicator has to tell, its own close or the abort has told.
    boolean told = stuck instanceof NcclException && !(stuck instanceof NcclTimeoutException);
    if (stuck != null && !told) {
      throw stuck;
    }
  }

  private synchronized void destroy() {
    destroyed = true;
    if (!foreign) {
      CurrentDevice.run(
          device, () -> CudaResults.check(cudart_h.cudaStreamDestroy(handle), "cudaStreamDestroy"));
    }
  }

  /** Waits for what is enqueued and returns why it did not come to its end, or null. */
  private RuntimeException finish() {
    try {
      BlockingCalls.uninterrupted(
          users.longestTimeout(), limit -> await(this::reached, limit, "cudaStreamQuery"));
      return null;
    } catch (CommunicatorAbortedException aborted) {
      return endsAfterAbort() ? null : aborted;
    } catch (RuntimeException stuck) {
      return stuck;
    }
  }

  /**
   * Returns whether the device leaves the kernels of an aborted communicator, which takes it a
   * moment.
   */
  private boolean endsAfterAbort() {
    try {
      drain(ABORT_TIMEOUT);
      return true;
    } catch (NcclTimeoutException stays) {
      return false;
    }
  }

  @Override
  public String toString() {
    return "CudaStream[device %d, 0x%x%s]"
        .formatted(device, handle.address(), foreign ? ", foreign" : "");
  }
}
