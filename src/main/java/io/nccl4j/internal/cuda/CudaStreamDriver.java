package io.nccl4j.internal.cuda;

import io.nccl4j.CudaException;
import io.nccl4j.NcclException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.Stream;
import io.nccl4j.bindings.cudart.cudart_h;
import io.nccl4j.internal.ffm.BlockingCalls;
import io.nccl4j.internal.ffm.PlatformThreads;
import io.nccl4j.internal.util.Backoff;
import io.nccl4j.internal.util.CloseAll;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Loggers;
import io.nccl4j.spi.BufferMemory;
import io.nccl4j.spi.EventDriver;
import io.nccl4j.spi.GraphDriver;
import io.nccl4j.spi.OperationTrace;
import io.nccl4j.spi.PendingLaunch;
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
import org.apache.logging.log4j.Logger;

/**
 * A CUDA stream, created by nccl4j or by other code.
 *
 * <p>A wait polls the stream instead of blocking in the runtime, so that it can end when its
 * timeout expires or a collective fails, whose kernel would never end by itself.
 */
public final class CudaStreamDriver implements StreamDriver {
  private static final Logger LOG = Loggers.of(CudaStreamDriver.class);
  private static final int NORMAL_PRIORITY = 0;
  private static final int ERROR_POLL_INTERVAL = 64;
  private static final Duration FAILURE_TIMEOUT = Duration.ofSeconds(5);

  private final MemorySegment handle;
  private final long address;
  private final int device;
  private final StreamContext users;
  private final boolean foreign;
  private final StagingBuffers staging = new StagingBuffers(this);
  private final LaunchWatch launches = new LaunchWatch(this);
  private final HandleGuard guard = new HandleGuard(this, "stream");
  // Destroyed before its work had ended. Set before the guard ends.
  private volatile boolean stuck;
  // The end of the last traced operation; the next one is assumed to begin no earlier.
  private volatile long lastTraceEnd = System.nanoTime();

  private CudaStreamDriver(MemorySegment handle, int device, StreamContext users, boolean foreign) {
    this.handle = handle;
    this.address = handle.address();
    this.device = device;
    this.users = users;
    this.foreign = foreign;
  }

  /** Creates a stream on a device. */
  public static CudaStreamDriver create(int device, Stream.Priority priority, StreamContext users) {
    MemorySegment handle = CurrentDevice.call(device, () -> createHandle(priority));
    return new CudaStreamDriver(handle, device, users, false);
  }

  private static MemorySegment createHandle(Stream.Priority priority) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment stream = arena.allocate(ValueLayout.ADDRESS);
      int flags = cudart_h.cudaStreamNonBlocking();
      int level = priority == Stream.Priority.HIGH ? highestPriority(arena) : NORMAL_PRIORITY;
      CudaResults.check(
          cudart_h.cudaStreamCreateWithPriority(stream, flags, level),
          "cudaStreamCreateWithPriority");
      return stream.get(ValueLayout.ADDRESS, 0);
    }
  }

  private static int highestPriority(Arena arena) {
    MemorySegment highest = arena.allocate(ValueLayout.JAVA_INT);
    CudaResults.check(
        cudart_h.cudaDeviceGetStreamPriorityRange(MemorySegment.NULL, highest),
        "cudaDeviceGetStreamPriorityRange");
    return highest.get(ValueLayout.JAVA_INT, 0);
  }

  /** Wraps a stream that other code owns. */
  public static CudaStreamDriver ofAddress(long address, int device, StreamContext users) {
    return new CudaStreamDriver(MemorySegment.ofAddress(address), device, users, true);
  }

  /** Returns the {@code cudaStream_t}. */
  public long address() {
    return address;
  }

  /** Returns the {@code cudaStream_t} as a pointer for native calls, with the global scope. */
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

  /** Adds a failure of the communicators to one of the device, since it may be the cause. */
  private CudaException withFailureOfUsers(CudaException failure) {
    try {
      users.throwFailure("cudaStreamQuery");
    } catch (NcclException another) {
      CloseAll.suppress(failure, another);
    }
    return failure;
  }

  /**
   * Waits until a condition on this stream is met, or a communicator that uses the stream has
   * failed.
   */
  void await(BooleanSupplier reached, Deadline deadline, String function) {
    await(reached, deadline, function, true);
  }

  private void await(
      BooleanSupplier reached, Deadline deadline, String function, boolean checkUsers) {
    CaptureMode.runRelaxed(
        device,
        () -> {
          awaitOnDevice(reached, deadline, function, checkUsers);
        });
  }

  private void awaitOnDevice(
      BooleanSupplier reached, Deadline deadline, String function, boolean checkUsers) {
    Backoff backoff = Backoff.betweenQueries(deadline);
    int polls = 0;
    while (!reached.getAsBoolean()) {
      if (!BlockingCalls.pause(backoff, function)) {
        throw users.timedOut(function, deadline.timeout(), "the work on " + this);
      }
      // Checking the communicators costs more than querying the stream, and is less urgent.
      if (checkUsers && ++polls % ERROR_POLL_INTERVAL == 0) {
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
      reached = CaptureMode.relaxed(device, this::reached);
    } catch (CudaException failure) {
      throw withFailureOfUsers(failure);
    }
    users.throwFailure("cudaStreamQuery");
    return reached;
  }

  @Override
  public boolean idle() {
    try {
      return PlatformThreads.call(
          "cudaStreamQuery", () -> CaptureMode.relaxed(device, this::ended));
    } catch (CudaException failure) {
      // A wait for the stream throws it. Other failures do not say that the work has ended.
      return CudaResults.ofBrokenDevice(failure.code());
    }
  }

  @Override
  public boolean foreign() {
    return foreign;
  }

  /**
   * Returns whether the device has completed this stream's work, regardless of the communicators.
   * False during a capture, which a query would invalidate.
   */
  private boolean reached() {
    return guard.call(this::queryReached);
  }

  private boolean queryReached() {
    if (queryCapturing()) {
      return false;
    }
    int result = cudart_h.cudaStreamQuery(handle);
    // A capture may have begun just now.
    if (result == cudart_h.cudaErrorNotReady() || CudaResults.ofCapture(result)) {
      CudaResults.forget(result);
      return false;
    }
    CudaResults.check(result, "cudaStreamQuery");
    return true;
  }

  void checkNotDestroyed() {
    guard.call(() -> null);
  }

  /** Makes a call with the handle, with its device current, and not after it was destroyed. */
  private void call(String function, IntSupplier nativeCall) {
    CurrentDevice.run(device, () -> CudaResults.check(guard.call(nativeCall::getAsInt), function));
  }

  /**
   * Returns the failure of this stream or of the communicators that use it, or null. For callers
   * that must not throw. A closed stream has completed.
   */
  RuntimeException failure() {
    try {
      if (!guard.ended()) {
        isComplete();
      }
      return null;
    } catch (IllegalStateException destroyedMeanwhile) {
      return guard.ended() ? null : destroyedMeanwhile;
    } catch (RuntimeException failure) {
      return failure;
    }
  }

  /** Returns the exception for a completion that is overdue. */
  NcclException lateCompletion() {
    return users.timedOut("cudaLaunchHostFunc", DEFAULT_TIMEOUT, "the work on " + this);
  }

  /** Returns the failure of the communicators that use this stream, or null. */
  RuntimeException failureOfUsers() {
    try {
      users.throwFailure("cudaLaunchHostFunc");
      return null;
    } catch (RuntimeException failure) {
      return failure;
    }
  }

  /** Returns whether the work has ended; known for a destroyed stream too. */
  private boolean ended() {
    return guard.callUnlessEnded(this::queryReached, () -> !stuck);
  }

  @Override
  public boolean stuck() {
    return stuck;
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
      // The operations are launched: throwing would suggest that they were rejected.
      LOG.warn("{}: the end of these operations cannot be traced", this, failure);
      trace.ended(failure);
    }
  }

  /** False for a destroyed stream. An error is left to the next call. */
  @Override
  public boolean capturing() {
    try {
      return PlatformThreads.call(
          "cudaStreamIsCapturing",
          () ->
              CurrentDevice.call(
                  device, () -> guard.callUnlessEnded(this::queryCapturing, () -> false)));
    } catch (CudaException broken) {
      return false; // so that the stream can still be closed
    }
  }

  private boolean queryCapturing() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment status = arena.allocate(ValueLayout.JAVA_INT);
      int result = cudart_h.cudaStreamIsCapturing(handle, status);
      CudaResults.forget(result);
      // The error is that of the legacy stream, which would join another stream's capture.
      return result == cudart_h.cudaErrorStreamCaptureImplicit()
          || status.get(ValueLayout.JAVA_INT, 0) != cudart_h.cudaStreamCaptureStatusNone();
    }
  }

  /** Ends a trace whose operations the device has just completed. */
  void reached(OperationTrace trace) {
    trace.begunSince(lastTraceEnd);
    lastTraceEnd = trace.finished();
  }

  @Override
  public void record(EventDriver event) {
    call("cudaEventRecord", () -> ((CudaEventDriver) event).record(handle));
  }

  /**
   * Records an event, unless other code is capturing this stream: the event would become a part of
   * its graph. Returns whether it was recorded.
   */
  boolean recordUnlessCapturing(CudaEventDriver event) {
    return CurrentDevice.call(
        device,
        () ->
            guard.callUnlessEnded(
                () -> {
                  if (queryCapturing()) {
                    return false;
                  }
                  int result = event.record(handle);
                  if (CudaResults.ofCapture(result)) { // which has begun just now
                    CudaResults.forget(result);
                    return false;
                  }
                  CudaResults.check(result, "cudaEventRecord");
                  return true;
                },
                () -> false));
  }

  @Override
  public void follow(PendingLaunch launched) {
    try {
      launches.follow(launched);
    } catch (RuntimeException failure) {
      // The operations are launched: throwing would suggest that they were rejected.
      LOG.warn("{}: these operations have no deadline", this, failure);
    }
  }

  @Override
  public void waitFor(EventDriver event) {
    call("cudaStreamWaitEvent", () -> ((CudaEventDriver) event).waitedForBy(handle));
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
    // Thread-local, so that other threads can make calls that a capture forbids, such as
    // allocating.
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
      // The error that invalidated the capture is thrown elsewhere; CUDA repeats it here.
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
    RuntimeException cause = finish();
    if (cause != null) {
      users.markStranded();
      CompletionCallbacks.fail(this, cause);
    }
    // The cause first: after a device error, the later steps may fail with the same error.
    CloseAll.all(
        List.of(
            () -> throwUnreported(cause),
            () -> staging.close(cause == null),
            () -> destroy(cause instanceof NcclException)));
  }

  private static void throwUnreported(RuntimeException cause) {
    // A failure of a communicator was reported by its close or the abort.
    boolean reported = cause instanceof NcclException && !(cause instanceof NcclTimeoutException);
    if (cause != null && !reported) {
      throw cause;
    }
  }

  private void destroy(boolean pending) {
    stuck = pending;
    guard.end(
        () -> {
          if (!foreign) {
            CurrentDevice.run(
                device,
                () -> CudaResults.check(cudart_h.cudaStreamDestroy(handle), "cudaStreamDestroy"));
          }
        });
  }

  /** Waits for the enqueued work. Returns why it did not complete, or null. */
  private RuntimeException finish() {
    Duration timeout = users.longestTimeout();
    Deadline deadline = Deadline.after(timeout);
    try {
      BlockingCalls.uninterrupted(timeout, limit -> await(this::reached, limit, "cudaStreamQuery"));
      return null;
    } catch (NcclException failure) {
      return deadline.passed() ? failure : finishAfter(failure);
    } catch (RuntimeException cause) {
      return cause;
    }
  }

  /**
   * Waits for work that ends although a communicator was aborted or has failed. The kernels of an
   * aborted one take a moment, and copies do not depend on either. Returns why it did not complete,
   * or null.
   */
  private RuntimeException finishAfter(NcclException failure) {
    try {
      drain(FAILURE_TIMEOUT);
      return null;
    } catch (NcclTimeoutException stays) {
      return failure;
    } catch (RuntimeException cause) {
      return cause;
    }
  }

  @Override
  public String toString() {
    return "CudaStream[device %d, 0x%x%s]"
        .formatted(device, handle.address(), foreign ? ", foreign" : "");
  }
}
