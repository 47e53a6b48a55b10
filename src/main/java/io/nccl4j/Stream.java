package io.nccl4j;

import io.nccl4j.internal.util.Arguments;
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

/**
 * A queue of work on one device: what is enqueued runs in order, and the call that enqueues it does
 * not wait for that.
 *
 * <p>Streams come from {@link Communicator#newStream} and {@link Backend#newStream} and belong to
 * the code that made them. Any thread may use a stream; the order of work is the order in which the
 * calls reached it. None may close it while another enqueues work on it. Work of different streams
 * is ordered only by {@link Event}s.
 *
 * <p>A stream that becomes unreachable before it was closed is logged as a warning, with the stack
 * that made it. It is not closed: on CUDA it stays until the process ends.
 */
public final class Stream implements AutoCloseable {
  /** How long {@link #synchronize()} waits: 30 minutes, longer than any step of a training run. */
  public static final Duration DEFAULT_TIMEOUT = StreamDriver.DEFAULT_TIMEOUT;

  private static final Duration COPY_TIMEOUT = Duration.ofSeconds(30);
  private static final Duration ABORT_TIMEOUT = Duration.ofSeconds(5);

  private static final AtomicLong STREAMS = new AtomicLong();

  private final long number = STREAMS.incrementAndGet();
  private final DeviceType deviceType;
  private final int device;
  private final StreamDriver driver;

  // The thread whose operations are captured rather than run, or null.
  private Thread capturedBy;

  // The work of an aborted communicator, which a wait has told, may not have left the device yet.
  private volatile boolean draining;

  private final StreamFence fence = new StreamFence(this);
  private final StreamUsers users = new StreamUsers(this, number);
  private final AtomicBoolean closing = new AtomicBoolean();
  // Where its work runs, or nowhere once it is closed. Read plainly on the hot path; written once
  // more.
  private int deviceKey;
  // Closed with work on it: the end of the last communicator of that work releases it.
  private volatile boolean closedWhileBusy;
  private volatile boolean released;

  private final LeakTracker leak = new LeakTracker();

  Stream(DeviceType platform, int device, Function<StreamContext, StreamDriver> driver) {
    this.deviceType = platform;
    this.device = device;
    this.deviceKey = platform.deviceKey(device);
    this.driver = driver.apply(users);
    leak.watch(this, "stream " + number + " of " + platform + " device " + device);
    leak.afterwards(this.driver.whenForgotten());
  }

  /** {@return the platform of the stream's backend} */
  public DeviceType deviceType() {
    return deviceType;
  }

  /** {@return the number of this stream in its process, from 1, by which recordings name it} */
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

  /** Returns whether the stream is open and of this very place. */
  boolean isAt(int there) {
    return deviceKey == there;
  }

  /**
   * Waits until everything enqueued so far has finished, for at most {@link #DEFAULT_TIMEOUT}. C:
   * {@code cudaStreamQuery} and {@code ncclCommGetAsyncError}, in turn.
   *
   * @throws NcclException if a collective on this stream failed, a peer failed, or the time has
   *     passed
   * @throws CudaException if work on this stream failed
   * @throws java.util.concurrent.CancellationException if the waiting thread is interrupted; its
   *     interrupt status stays set
   * @throws IllegalStateException if the stream is closed or being captured
   */
  public void synchronize() {
    synchronize(DEFAULT_TIMEOUT);
  }

  /**
   * Waits until everything enqueued so far has finished. C: {@code cudaStreamQuery} and {@code
   * ncclCommGetAsyncError}, in turn.
   *
   * @param timeout the maximum time to wait; positive
   * @throws NcclTimeoutException if the timeout expires; the work goes on
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
    checkNotCaptured("synchronize");
    ThreadScope.checkNothingKeptFor(this, "synchronize");
    long enqueued = fence.enqueued();
    reportingAborts(() -> driver.await(timeout));
    fence.passed(enqueued);
  }

  /**
   * Runs a wait that may tell of an abort; once told, the stream goes on without who was aborted.
   *
   * @param wait the wait
   */
  void reportingAborts(Runnable wait) {
    try {
      wait.run();
    } catch (CommunicatorAbortedException told) {
      users.removeAborted();
      draining = true;
      throw told;
    }
  }

  /**
   * {@return whether everything enqueued so far has finished} C: {@code cudaStreamQuery}.
   *
   * @throws NcclException if a collective on this stream failed
   * @throws CudaException if work on this stream failed
   * @throws IllegalStateException if the stream is closed or being captured
   */
  public boolean isComplete() {
    checkOpen();
    checkNotCaptured("isComplete");
    ThreadScope.checkNothingKeptFor(this, "isComplete");
    long enqueued = fence.enqueued();
    boolean complete = driver.isComplete();
    if (complete) {
      fence.passed(enqueued);
    }
    return complete;
  }

  /**
   * {@return a stage that completes when everything enqueued so far has finished, or exceptionally
   * when it failed, or after {@link #DEFAULT_TIMEOUT}} Dependent stages run in a thread of nccl4j's
   * own, or, if it has completed already, in the one that adds them; they may enqueue more work. C:
   * {@code cudaLaunchHostFunc}.
   *
   * @throws IllegalStateException if the stream is closed or being captured
   */
  public CompletionStage<Void> completion() {
    checkOpen();
    checkNotCaptured("completion");
    ThreadScope.checkNothingKeptFor(this, "completion");
    long enqueued = fence.enqueued();
    return driver.completion().thenRun(new Passing(fence, enqueued));
  }

  /**
   * Notes that the tickets up to one have passed. Not a lambda expression: a stack overflow while
   * the JDK links one can fail it for the life of the process.
   */
  private record Passing(StreamFence fence, long value) implements Runnable {
    @Override
    public void run() {
      fence.passed(value);
    }
  }

  /**
   * Enqueues the marking of an event: it completes when the stream comes to it. C: {@code
   * cudaEventRecord}.
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
    // Who asks meanwhile must not take one stream's mark for another's.
    synchronized (event) {
      long enqueued = fence.enqueued();
      event.setRecord(null);
      driver.record(event.driver());
      event.setRecord(new Event.Recording(fence, enqueued));
    }
  }

  /**
   * Enqueues a wait: later work of this stream starts only when the event's last recorded mark has
   * been reached. An event that was never recorded is not waited for. C: {@code
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
      fence.follows(event.record());
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

  /** Returns whether operations are captured rather than run. */
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

  /** Throws unless it is this thread that captures. */
  void checkCapturedHere() {
    Thread by = capturedBy;
    if (by != Thread.currentThread()) {
      throw new IllegalStateException(
          // Nobody does where the capture has ended this moment.
          (by == null ? "another thread" : by)
              + " captures this stream; another thread's operations cannot join: "
              + this);
    }
  }

  /** Begins a capture; other threads' calls are refused from before it until after its end. */
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

  /** Ends the capture; returns its graph, or null for one that enqueues the operations anew. */
  GraphDriver finishCapture() {
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

  /** Returns whether operations are to be launched while they are captured. */
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

  /** Returns whether the stream has not been released yet, although it may be closed. */
  boolean alive() {
    return !released;
  }

  /** Returns whether the stream is closed but not released, because of pending work. */
  boolean closedWhileBusy() {
    return closedWhileBusy;
  }

  /** Returns how far this stream has come. */
  StreamFence fence() {
    return fence;
  }

  /** Remembers that what has been enqueued uses these buffers, each of which may be null. */
  void uses(Buffer one, Buffer another) {
    uses(one, another, fence.fenceValue());
  }

  private void uses(Buffer one, Buffer another, long ticket) {
    if (one != null) {
      one.usedBy(fence, ticket);
    }
    if (another != null && another != one) {
      another.usedBy(fence, ticket);
    }
  }

  /** Remembers what an operation uses that has been enqueued; each buffer may be null. */
  void trackOperands(Buffer send, Buffer recv, Buffer scalar) {
    long ticket = fence.fenceValue();
    uses(send, recv, ticket);
    uses(scalar, null, ticket);
    fence.collective(ticket);
  }

  /** Waits for copies, which end by themselves. */
  void drainCopies() {
    drain(COPY_TIMEOUT);
  }

  /** Waits for the end of this stream, whatever the communicators have to report. */
  void drain(Duration timeout) {
    long enqueued = fence.enqueued();
    driver.drain(timeout);
    fence.passed(enqueued);
  }

  /** Copies to host memory and waits, as {@link #synchronize()} does. */
  void download(Buffer source, MemorySegment target) {
    long enqueued = fence.enqueued();
    reportingAborts(() -> driver.download(source.memory(), target));
    fence.passed(enqueued);
  }

  /** Returns whether everything is done, whatever the communicators have to report. */
  boolean endReached() {
    if (!alive()) {
      return true;
    }
    if (captured()) {
      // Asking would invalidate the capture.
      return false;
    }
    try {
      if (draining || users.anyAborted()) {
        driver.drain(ABORT_TIMEOUT);
        draining = false;
        return true;
      }
      return !users.anyLaunching() && driver.idle();
    } catch (NcclTimeoutException stays) {
      return false;
    } catch (CudaException broken) {
      // A device that has failed does no more work; a wait for the stream throws the failure.
      return true;
    }
  }

  /** Returns whether this stream is known to carry operations of a communicator. */
  boolean isUsedBy(StreamUser communicator) {
    return users.has(communicator);
  }

  /** Remembers whose operations this stream carries. */
  void usedBy(StreamUser communicator) {
    users.add(communicator);
  }

  /** Returns what a wait for this stream throws whose time has passed. */
  NcclException timedOut(String function, Duration timeout, String waitedFor) {
    return users.timedOut(function, timeout, waitedFor);
  }

  /**
   * Closes the stream. Copies that are enqueued are waited for, for at most the longest timeout of
   * the communicators that it carries (30 seconds without any). A pending collective is refused:
   * the stream is still closed, and it is released when its communicators are closed or aborted.
   * What an aborted communicator has left is waited for. Idempotent. A stream that wraps a foreign
   * one leaves that one alone, and waits for collectives too. C: {@code cudaStreamDestroy}.
   *
   * @throws IllegalStateException if a collective is pending; or if the stream is being captured,
   *     and nothing is done then
   * @throws NcclTimeoutException if the timeout expires
   * @throws CudaException if work on this stream failed, or the runtime refuses
   */
  @Override
  public void close() {
    checkNotCaptured("close");
    if (!closing.compareAndSet(false, true)) {
      return;
    }
    leak.close();
    if (!driver.foreign() && hasPendingCollective()) {
      closedWhileBusy = true;
      fence.keepStream();
      deviceKey = DeviceType.NO_DEVICE;
      throw new IllegalStateException(
          "stream is closed while a collective of %s is pending on it, which needs it until that is closed or aborted; synchronize first: %s"
              .formatted(users.last(), this));
    }
    deviceKey = DeviceType.NO_DEVICE;
    release();
  }

  private boolean hasPendingCollective() {
    return users.anyOpen() && !fence.passedCollectives();
  }

  private void release() {
    long enqueued = fence.enqueued();
    try {
      driver.release();
    } finally {
      released = true;
    }
    fence.passed(enqueued);
  }

  /** Releases the stream if it is closed already and no communicator needs it any more. */
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
