package io.nccl4j;

import io.nccl4j.internal.util.Arguments;
import io.nccl4j.internal.util.LeakTracker;
import io.nccl4j.spi.GraphDriver;
import io.nccl4j.spi.StreamContext;
import io.nccl4j.spi.StreamDriver;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;
import org.jspecify.annotations.NullMarked;
import org.jspecify.annotations.Nullable;

/**
 * A queue of work on one device, which runs asynchronously and in order.
 *
 * {@snippet :
 * try (Stream stream = comm.newStream()) {
 *   comm.allReduce(send, recv, ReduceOp.SUM, stream);
 *   stream.synchronize(); // waits until the work is done
 * }
 * }
 *
 * <p>{@link Communicator#newStream} and {@link Backend#newStream} create streams; the caller owns
 * and closes them. Any thread may use a stream; work runs in the order of the calls. A stream must
 * not be closed while another thread enqueues work on it. Work of different streams is ordered only
 * by {@link Event}s.
 *
 * <p>If a stream becomes unreachable without having been closed, a warning is logged with the stack
 * trace of its creation. It is not closed; on CUDA it exists until the process exits.
 */
@NullMarked
public final class Stream implements AutoCloseable {
  /**
   * The priority of a stream's work on its device. When the device has room for more work, it
   * starts pending work of higher priority first; work that runs is not interrupted. The reference
   * backend ignores it.
   */
  public enum Priority {
    /** CUDA's default priority. */
    NORMAL,
    /** The highest priority of the device. */
    HIGH
  }

  /** The timeout of {@link #synchronize()}: 30 minutes, longer than any step of a training run. */
  public static final Duration DEFAULT_TIMEOUT = StreamDriver.DEFAULT_TIMEOUT;

  private static final Duration COPY_TIMEOUT = Duration.ofSeconds(30);
  private static final Duration ABORT_TIMEOUT = Duration.ofSeconds(5);

  private static final AtomicLong STREAMS = new AtomicLong();

  private final long number = STREAMS.incrementAndGet();
  private final DeviceType deviceType;
  private final int device;
  private final StreamDriver driver;

  // The thread whose operations are captured rather than run, or null.
  private @Nullable Thread capturedBy;

  // Set when a wait has reported an abort: the aborted work may not have left the device yet.
  private volatile boolean draining;

  private final StreamProgress progress = new StreamProgress(this);
  private final StreamUsers users = new StreamUsers(this, number);
  private final AtomicBoolean closing = new AtomicBoolean();
  // NO_DEVICE once it is closed. Not volatile, since it is read on the hot path.
  private int deviceKey;
  // Closed with pending work; released when the last communicator of that work ends.
  private volatile boolean closedWhileBusy;
  private volatile boolean released;

  private final LeakTracker leak = new LeakTracker();

  Stream(DeviceType deviceType, int device, Function<StreamContext, StreamDriver> driver) {
    this.deviceType = deviceType;
    this.device = device;
    this.deviceKey = deviceType.deviceKey(device);
    this.driver = driver.apply(users);
    leak.watch(this, "stream " + number + " of " + deviceType + " device " + device);
    leak.afterReport(this.driver.whenForgotten());
    Statistics.STREAMS.incrementAndGet();
  }

  /** {@return the type of the stream's device} */
  public DeviceType deviceType() {
    return deviceType;
  }

  /**
   * {@return the number of this stream in its process, from 1, which identifies it in recordings}
   */
  public long number() {
    return number;
  }

  /** {@return the device that runs this stream's work} */
  public int device() {
    return device;
  }

  /** {@return whether the stream has not been closed} */
  public boolean isOpen() {
    return deviceKey != DeviceType.NO_DEVICE;
  }

  /** Returns whether the stream is open and has this device key. */
  boolean isOpenOn(int key) {
    return deviceKey == key;
  }

  /**
   * Waits until all work enqueued so far has completed, for at most {@link #DEFAULT_TIMEOUT}. C:
   * {@code cudaStreamQuery} and {@code ncclCommGetAsyncError}, in turn.
   *
   * @throws NcclException if a collective on this stream failed, a peer failed, or the timeout
   *     expires
   * @throws CudaException if work on this stream failed
   * @throws java.util.concurrent.CancellationException if the waiting thread is interrupted; its
   *     interrupt status stays set
   * @throws IllegalStateException if the stream is closed or being captured
   */
  public void synchronize() {
    synchronize(DEFAULT_TIMEOUT);
  }

  /**
   * Waits until all work enqueued so far has completed. C: {@code cudaStreamQuery} and {@code
   * ncclCommGetAsyncError}, in turn.
   *
   * @param timeout the maximum time to wait; positive. On NCCL the exception may come up to 5 s
   *     later, since its RAS service is asked which ranks are late.
   * @throws NcclTimeoutException if the timeout expires; the work continues
   * @throws NcclException if a collective on this stream failed, or a peer failed
   * @throws CudaException if work on this stream failed
   * @throws IllegalStateException if the stream is closed or being captured
   * @throws java.util.concurrent.CancellationException if the waiting thread is interrupted; its
   *     interrupt status stays set
   * @throws IllegalArgumentException if the timeout is not positive
   */
  public void synchronize(Duration timeout) {
    Arguments.positive(timeout, "timeout");
    checkOpen();
    checkCanWait("synchronize");
    ThreadScope.checkNothingKeptFor(this, "synchronize");
    long enqueued = progress.advance();
    reportingAborts(() -> driver.await(timeout));
    progress.markPassed(enqueued);
  }

  /**
   * Runs a wait that may report an abort. After the report, the stream no longer tracks the aborted
   * communicators.
   */
  void reportingAborts(Runnable wait) {
    try {
      Statistics.waiting(wait);
    } catch (CommunicatorAbortedException aborted) {
      forgetAborted();
      throw aborted;
    } catch (NcclTimeoutException late) {
      if (users.anyAborted()) {
        forgetAborted();
      }
      throw late;
    } catch (NcclRemoteException lost) {
      throw users.named(lost);
    }
  }

  private void forgetAborted() {
    users.removeAborted();
    draining = true;
  }

  /**
   * {@return whether all work enqueued so far has completed} C: {@code cudaStreamQuery}.
   *
   * @throws NcclException if a collective on this stream failed
   * @throws CudaException if work on this stream failed
   * @throws IllegalStateException if the stream is closed or being captured
   */
  public boolean isComplete() {
    checkOpen();
    checkCanWait("isComplete");
    ThreadScope.checkNothingKeptFor(this, "isComplete");
    long enqueued = progress.advance();
    boolean complete = driver.isComplete();
    if (complete) {
      progress.markPassed(enqueued);
    }
    return complete;
  }

  /**
   * {@return a stage that completes when all work enqueued so far has completed, and exceptionally
   * when that work fails or after {@link #DEFAULT_TIMEOUT}} Dependent stages run in a thread of
   * nccl4j or, if the stage has already completed, in the thread that adds them; they may enqueue
   * more work. C: {@code cudaLaunchHostFunc}.
   *
   * @throws IllegalStateException if the stream is closed or being captured
   */
  public CompletionStage<Void> completion() {
    checkOpen();
    checkCanWait("completion");
    ThreadScope.checkNothingKeptFor(this, "completion");
    long enqueued = progress.advance();
    return driver
        .completion()
        .whenComplete((done, failure) -> Statistics.failed(failure))
        .thenRun(() -> progress.markPassed(enqueued));
  }

  /**
   * Records an event: it completes when the stream has completed all work enqueued before. C:
   * {@code cudaEventRecord}.
   *
   * @param event an event of this stream's device
   * @throws IllegalArgumentException if the event is of another device or backend
   * @throws IllegalStateException if the event or the stream is closed, or the stream is being
   *     captured
   */
  public void record(Event event) {
    checkEvent(event);
    if (event.device() != device) {
      throw new IllegalArgumentException(
          "event is of device " + event.device() + "; this stream is of device " + device);
    }
    // A concurrent query must not attribute one stream's recording to another stream.
    synchronized (event) {
      long enqueued = progress.advance();
      event.setRecord(null);
      driver.record(event.driver());
      event.setRecord(new Event.Recording(progress, enqueued, progress.collectives()));
    }
  }

  /**
   * Enqueues a wait: later work of this stream starts only when the last recording of the event has
   * completed. An event that was never recorded does not delay the stream. C: {@code
   * cudaStreamWaitEvent}.
   *
   * @param event an event of any device of the same backend
   * @throws IllegalArgumentException if the event is of another backend
   * @throws IllegalStateException if the event or the stream is closed, or the stream is being
   *     captured
   */
  public void waitFor(Event event) {
    checkEvent(event);
    synchronized (event) {
      driver.waitFor(event.driver());
      progress.follows(event.record());
    }
  }

  private void checkEvent(Event event) {
    Objects.requireNonNull(event, "event");
    checkOpen();
    checkNotCaptured("an event");
    if (!event.isOpen()) {
      throw new IllegalStateException("event is closed: " + event);
    }
    if (event.deviceType() != deviceType) {
      throw new IllegalArgumentException(
          "event " + event + " is of another backend than stream " + this);
    }
  }

  /** Returns whether operations are captured instead of run. */
  boolean captured() {
    return capturedBy != null;
  }

  void checkNotCaptured(String call) {
    if (capturedBy != null) {
      throw new IllegalStateException(
          call
              + " is not possible on a stream that is being captured; only operations are: "
              + this);
    }
  }

  /** Returns whether the stream is being captured, by nccl4j or by other code. */
  boolean capturedByAnyone() {
    return captured() || driver.capturing();
  }

  /**
   * Throws if the stream is being captured, by nccl4j or by other code. A wait for it would
   * invalidate the capture, or wait for its end.
   */
  void checkCanWait(String call) {
    checkNotCaptured(call);
    if (driver.capturing()) {
      throw new IllegalStateException(
          call + " is not possible while other code captures this stream: " + this);
    }
  }

  /** Throws unless the current thread is capturing this stream. */
  void checkCapturedHere() {
    Thread capturing = capturedBy;
    if (capturing != Thread.currentThread()) {
      throw new IllegalStateException(
          // Null if the capture has just ended.
          (capturing == null ? "another thread" : capturing)
              + " captures this stream; another thread's operations cannot join: "
              + this);
    }
  }

  /**
   * Begins a capture; calls of other threads are rejected from before it begins until after it
   * ends.
   */
  void startCapture() {
    synchronized (this) {
      checkNotCaptured("capture");
      capturedBy = Thread.currentThread();
    }
    boolean begun = false;
    try {
      driver.beginCapture();
      begun = true;
    } finally {
      if (!begun) {
        capturedBy = null;
      }
    }
  }

  /** Ends the capture; returns its graph, or null if the graph enqueues the operations again. */
  @Nullable GraphDriver finishCapture() {
    try {
      return driver.endCapture();
    } finally {
      capturedBy = null;
    }
  }

  void dropCapture() {
    try {
      driver.dropCapture();
    } finally {
      capturedBy = null;
    }
  }

  /** Returns whether operations must also be launched while they are captured. */
  boolean capturesNatively() {
    return driver.capturesNatively();
  }

  StreamDriver driver() {
    return driver;
  }

  void checkOpen() {
    if (!isOpen()) {
      throw new IllegalStateException("stream is closed: " + this);
    }
  }

  /** Returns whether the stream has not been released; it may already be closed. */
  boolean alive() {
    return !released;
  }

  /** Returns whether the stream was released before its work had ended. */
  boolean stuck() {
    return driver.stuck();
  }

  /** Returns whether the stream is closed but not released, because of pending work. */
  boolean closedWhileBusy() {
    return closedWhileBusy;
  }

  /** Returns the progress that tracks the completion of this stream's work. */
  StreamProgress progress() {
    return progress;
  }

  /** Records that the work just enqueued uses these buffers, each of which may be null. */
  void uses(Buffer one, @Nullable Buffer another) {
    uses(one, another, progress.take());
  }

  private void uses(@Nullable Buffer one, @Nullable Buffer another, long value) {
    if (one != null) {
      one.usedBy(progress, value);
    }
    if (another != null && another != one) {
      another.usedBy(progress, value);
    }
  }

  /** Records the buffers of an operation just enqueued; each may be null. */
  void trackOperands(@Nullable Buffer send, @Nullable Buffer recv, @Nullable Buffer scalar) {
    long value = progress.take();
    uses(send, recv, value);
    uses(scalar, null, value);
    progress.markCollective(value);
  }

  /** Waits for copies, which depend on no other rank. */
  void drainCopies() {
    drain(COPY_TIMEOUT);
  }

  /** Waits for all enqueued work, regardless of failures of the communicators. */
  void drain(Duration timeout) {
    long enqueued = progress.advance();
    driver.drain(timeout);
    progress.markPassed(enqueued);
  }

  /** Copies to host memory and waits, as {@link #synchronize()} does. */
  void download(Buffer source, MemorySegment target) {
    long enqueued = progress.advance();
    reportingAborts(() -> driver.download(source.memory(), target));
    progress.markPassed(enqueued);
  }

  /** Returns whether all work is done, regardless of failures of the communicators. */
  boolean endReached() {
    if (!alive()) {
      return !stuck();
    }
    if (captured()) {
      return false;
    }
    try {
      if (driver.capturing()) {
        return false;
      }
      if (draining || users.anyAborted()) {
        driver.drain(ABORT_TIMEOUT);
        draining = false;
        return true;
      }
      return !users.anyLaunching() && driver.idle();
    } catch (NcclTimeoutException stillDraining) {
      return false;
    } catch (CudaException failure) {
      // Thrown by a wait for the stream, too.
      return driver.idle();
    }
  }

  /** Returns whether a communicator is recorded as a user of this stream. */
  boolean isUsedBy(StreamUser communicator) {
    return users.has(communicator);
  }

  /** Records a communicator as a user of this stream. */
  void addUser(StreamUser communicator) {
    users.add(communicator);
  }

  /** Returns the exception of a wait for this stream that timed out. */
  NcclException timedOut(String function, Duration timeout, String waitedFor) {
    return users.timedOut(function, timeout, waitedFor);
  }

  /**
   * Closes the stream. Waits for enqueued copies and for the remaining work of aborted
   * communicators, for at most the longest timeout of the communicators that use the stream (30
   * seconds if there is none). If a collective is pending, {@code close()} throws {@code
   * IllegalStateException}; the stream is still closed, and is released when its communicators are
   * closed or aborted. Idempotent. A stream that wraps a foreign stream waits for collectives too,
   * and does not destroy the foreign stream. If the work does not end within these times, or within
   * 5 seconds after a communicator has failed, its memory stays allocated. C: {@code
   * cudaStreamDestroy}.
   *
   * @throws IllegalStateException if a collective is pending; or if the stream is being captured,
   *     also by other code, and then it stays open
   * @throws NcclTimeoutException if the timeout expires
   * @throws CudaException if work on this stream failed, or the CUDA runtime reports an error
   */
  @Override
  public void close() {
    checkCanWait("close");
    if (!closing.compareAndSet(false, true)) {
      return;
    }
    leak.close();
    if (!driver.foreign() && hasPendingCollective()) {
      closedWhileBusy = true;
      progress.keepStream();
      deviceKey = DeviceType.NO_DEVICE;
      throw new IllegalStateException(
          "stream is closed while a collective of %s is pending on it; it is released when that communicator is closed or aborted; synchronize before closing: %s"
              .formatted(users.last(), this));
    }
    deviceKey = DeviceType.NO_DEVICE;
    release();
  }

  private boolean hasPendingCollective() {
    return users.anyOpen() && !progress.passedCollectives();
  }

  private void release() {
    long enqueued = progress.advance();
    try {
      driver.release();
    } finally {
      Statistics.STREAMS.decrementAndGet();
      released = true;
    }
    if (!stuck()) {
      progress.markPassed(enqueued);
    }
  }

  /** Releases the stream if it is closed and no communicator needs it any more. */
  void releaseIfAbandoned() {
    if (closedWhileBusy && !users.anyOpen()) {
      synchronized (this) {
        if (!closedWhileBusy) {
          return;
        }
        closedWhileBusy = false;
      }
      release();
    }
  }

  @Override
  public String toString() {
    return driver.toString();
  }
}
