package io.nccl4j;

import io.nccl4j.internal.util.Steps;
import io.nccl4j.spi.EventDriver;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;

/**
 * A queue of work on one device: what is enqueued runs in order, and the call that enqueues it does
 * not wait for that.
 *
 * <p>Streams come from {@link Communicator#newStream} and {@link Backend#newStream} and belong to
 * whoever made them. Any thread may use a stream; the order of work is the order in which the calls
 * reached it. None may close it while another enqueues work on it. Work of different streams is
 * ordered only by {@link Event}s.
 *
 * <p>A stream that becomes unreachable before it was closed is logged as a warning, with the stack
 * that made it. It is not closed: on CUDA it stays until the process ends.
 */
public abstract sealed class Stream implements AutoCloseable
    permits io.nccl4j.cuda.CudaStream, io.nccl4j.reference.ReferenceStream {
  /**
   * How long {@link #synchronize()} waits: longer than any step of a training run, shorter than for
   * ever.
   */
  public static final Duration DEFAULT_TIMEOUT = Duration.ofMinutes(30);

  private static final Duration COPY_TIMEOUT = Duration.ofSeconds(30);
  private static final Duration ABORT_TIMEOUT = Duration.ofSeconds(5);

  private static final AtomicLong STREAMS = new AtomicLong();

  private final long number = STREAMS.incrementAndGet();
  private final Platform platform;
  private final int device;
  // Whose failures a wait on this stream must tell. Checked on the hot path by one comparison; the
  // list changes rarely.
  private Communicator lastUser;
  private final CopyOnWriteArrayList<Communicator> users = new CopyOnWriteArrayList<>();

  // What a capture has taken so far, each entry launched together; null where there is no capture.
  private List<List<GroupCall>> kept;
  private Thread captor;

  // The work of an aborted communicator, which a wait has told, may not have left the device yet.
  private volatile boolean leaving;

  private final Progress progress = new Progress(this);
  private final AtomicBoolean closing = new AtomicBoolean();
  // Where its work runs, or nowhere once it is closed. Read plainly on the hot path; written once
  // more.
  private int place;
  // Closed with work on it: whoever ends the last communicator of that work gives the stream back.
  private volatile boolean abandoned;
  private volatile boolean givenBack;

  private final LeakTracker leak = new LeakTracker();

  /**
   * For the backends: makes a stream of one device.
   *
   * @param platform the platform of the stream's backend
   * @param device the index of the device that runs its work
   */
  protected Stream(Platform platform, int device) {
    this.platform = platform;
    this.device = device;
    this.place = platform.place(device);
    leak.watch(this, "stream " + number + " of " + platform + " device " + device);
  }

  /** {@return the platform of the stream's backend} */
  public final Platform platform() {
    return platform;
  }

  /**
   * For the backends: sets what ends the threads of a stream that was never closed, once it is no
   * longer reachable.
   *
   * @param action must not refer to the stream, nor wait
   */
  protected final void whenForgotten(Runnable action) {
    leak.afterwards(action);
  }

  /** {@return the number of this stream in its process, from 1, by which recordings name it} */
  public final long number() {
    return number;
  }

  /** {@return the device that runs this stream's work} */
  public final int device() {
    return device;
  }

  /** {@return whether the stream has not been closed} */
  public final boolean open() {
    return place != Platform.NOWHERE;
  }

  /** Returns whether the stream is open and of this very place. */
  final boolean isAt(int there) {
    return place == there;
  }

  /**
   * Waits until everything enqueued so far has finished, for at most {@link #DEFAULT_TIMEOUT}. C:
   * {@code cudaStreamQuery} and {@code ncclCommGetAsyncError}, in turn.
   *
   * @throws NcclException if a collective on this stream failed, a peer failed, or the time has
   *     passed
   * @throws CudaException if work on this stream failed
   * @throws java.util.concurrent.CancellationException if the waiting thread was interrupted; its
   *     interrupt status stays set
   * @throws IllegalStateException if the stream is closed or being captured
   */
  public final void synchronize() {
    synchronize(DEFAULT_TIMEOUT);
  }

  /**
   * Waits until everything enqueued so far has finished. C: {@code cudaStreamQuery} and {@code
   * ncclCommGetAsyncError}, in turn.
   *
   * @param timeout the longest wait; positive
   * @throws NcclTimeoutException if the time has passed; the work goes on
   * @throws NcclException if a collective on this stream failed, or a peer failed
   * @throws CudaException if work on this stream failed
   * @throws IllegalStateException if the stream is closed or being captured
   * @throws java.util.concurrent.CancellationException if the waiting thread was interrupted; its
   *     interrupt status stays set
   * @throws IllegalArgumentException if the timeout is not positive
   */
  public final void synchronize(Duration timeout) {
    Objects.requireNonNull(timeout, "timeout");
    if (timeout.isNegative() || timeout.isZero()) {
      throw new IllegalArgumentException("timeout is " + timeout + "; it must be positive");
    }
    checkOpen();
    checkNotCaptured("synchronize");
    Group.checkNothingKeptFor(this, "synchronize");
    long enqueued = progress.enqueued();
    telling(() -> await(timeout));
    progress.passed(enqueued);
  }

  /**
   * Runs a wait that may tell of an abort; once told, the stream goes on without who was aborted.
   *
   * @param wait the wait
   */
  final void telling(Runnable wait) {
    try {
      wait.run();
    } catch (CommunicatorAbortedException told) {
      users.removeIf(Communicator::aborted);
      lastUser = null;
      leaving = true;
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
  public final boolean isComplete() {
    checkOpen();
    checkNotCaptured("isComplete");
    Group.checkNothingKeptFor(this, "isComplete");
    long enqueued = progress.enqueued();
    boolean complete = poll();
    if (complete) {
      progress.passed(enqueued);
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
  public final CompletionStage<Void> completion() {
    checkOpen();
    checkNotCaptured("completion");
    Group.checkNothingKeptFor(this, "completion");
    long enqueued = progress.enqueued();
    return whenComplete().thenRun(new Passing(progress, enqueued));
  }

  /**
   * Notes that the tickets up to one have passed. Not a lambda expression: a stack overflow while
   * the JDK links one can fail it for the life of the process.
   */
  private record Passing(Progress progress, long ticket) implements Runnable {
    @Override
    public void run() {
      progress.passed(ticket);
    }
  }

  /**
   * Enqueues the marking of an event: it completes when the stream comes to it. C: {@code
   * cudaEventRecord}.
   *
   * @param event an event of this stream's device
   * @throws IllegalArgumentException if the event is of another device or backend
   * @throws IllegalStateException if the event or the stream is closed, or the stream being
   *     captured
   */
  public final void record(Event event) {
    checkEvent(event);
    if (event.device() != device) {
      throw new IllegalArgumentException(
          "event is of device " + event.device() + "; this stream is of device " + device);
    }
    // Who asks meanwhile must not take one stream's mark for another's.
    synchronized (event) {
      long enqueued = progress.enqueued();
      event.marks(null);
      mark(event.driver());
      event.marks(new Event.Marked(progress, enqueued));
    }
  }

  /**
   * Enqueues a wait: later work of this stream starts only when the event's last recorded mark has
   * been reached. An event that was never recorded is not waited for. C: {@code
   * cudaStreamWaitEvent}.
   *
   * @param event an event of any device of the same backend
   * @throws IllegalArgumentException if the event is of another backend
   * @throws IllegalStateException if the event or the stream is closed, or the stream being
   *     captured
   */
  public final void waitFor(Event event) {
    checkEvent(event);
    synchronized (event) {
      follow(event.driver());
      progress.follows(event.marked());
    }
  }

  private void checkEvent(Event event) {
    Objects.requireNonNull(event, "event");
    checkOpen();
    checkNotCaptured("an event");
    if (!event.open()) {
      throw new IllegalStateException("event is closed: " + event);
    }
    if (event.platform() != platform) {
      throw new IllegalArgumentException(
          "event " + event + " is of another backend than stream " + this);
    }
  }

  /** Returns whether operations are captured rather than run. */
  final boolean captured() {
    return kept != null;
  }

  final void checkNotCaptured(String call) {
    if (kept != null) {
      throw new IllegalStateException(
          call
              + " is not possible on a stream that is being captured; only operations are: "
              + this);
    }
  }

  /** Throws unless it is this thread that captures. */
  final void checkCapturedHere() {
    Thread by = captor;
    if (by != Thread.currentThread()) {
      throw new IllegalStateException(
          // Nobody does where the capture has ended this moment.
          (by == null ? "another thread" : by)
              + " captures this stream; another thread's operations cannot join: "
              + this);
    }
  }

  /** Begins a capture; other threads' calls are refused from before it until after its end. */
  final void startCapture() {
    synchronized (this) {
      checkNotCaptured("capture");
      captor = Thread.currentThread();
      kept = new ArrayList<>();
    }
    boolean begun = false;
    try {
      beginCapture();
      begun = true;
    } finally {
      if (!begun) {
        forgetCapture();
      }
    }
  }

  /** Keeps operations that were launched together for the graph. */
  final void keep(List<GroupCall> together) {
    kept.add(List.copyOf(together));
  }

  final Graph finishCapture() {
    try {
      return endCapture(List.copyOf(kept));
    } finally {
      forgetCapture();
    }
  }

  final void dropCapture() {
    try {
      abandonCapture();
    } finally {
      forgetCapture();
    }
  }

  private void forgetCapture() {
    kept = null;
    captor = null;
  }

  /**
   * {@return whether operations are to be launched while they are captured, because CUDA takes
   * them}
   */
  protected boolean capturesNatively() {
    return false;
  }

  /** Begins to capture, where something must be told so. */
  protected void beginCapture() {
    // A recording needs no beginning.
  }

  /**
   * Ends the capture.
   *
   * @param launches the captured operations, in the parts in which they were launched
   * @return its graph, for the caller of {@link Graph#capture} to close
   */
  protected Graph endCapture(List<List<GroupCall>> launches) {
    return new Graph.Recorded(platform, device, launches);
  }

  /** Ends a capture that has failed and is to have no graph. */
  protected void abandonCapture() {
    // A recording is forgotten.
  }

  final void checkOpen() {
    if (!open()) {
      throw new IllegalStateException("stream is closed: " + this);
    }
  }

  /** Returns whether the stream has not been given back yet, although it may be closed. */
  final boolean alive() {
    return !givenBack;
  }

  /** Returns whether the stream is closed but not given back, because of pending work. */
  final boolean abandoned() {
    return abandoned;
  }

  /** Returns how far this stream has come. */
  final Progress progress() {
    return progress;
  }

  /** Remembers that what has been enqueued uses these buffers, each of which may be null. */
  final void uses(Buffer one, Buffer another) {
    uses(one, another, progress.ticket());
  }

  private void uses(Buffer one, Buffer another, long ticket) {
    if (one != null) {
      one.usedBy(progress, ticket);
    }
    if (another != null && another != one) {
      another.usedBy(progress, ticket);
    }
  }

  /** Remembers what a call uses that has been enqueued. */
  final void carries(GroupCall call) {
    if (call instanceof OperationCall one) {
      carries(one.send(), one.recv(), one.op());
      return;
    }
    long ticket = progress.ticket();
    call.operands().forEach(operand -> operand.usedBy(progress, ticket));
    progress.collective(ticket);
  }

  /** Remembers what an operation uses that has been enqueued. */
  final void carries(Buffer send, Buffer recv, ReduceOp op) {
    long ticket = progress.ticket();
    uses(send, recv, ticket);
    if (op instanceof ReduceOp.PreMulSum created && created.scalar() != null) {
      uses(created.scalar(), null, ticket);
    }
    progress.collective(ticket);
  }

  /** Waits for copies, which end by themselves. */
  final void drainCopies() {
    long enqueued = progress.enqueued();
    drain(COPY_TIMEOUT);
    progress.passed(enqueued);
  }

  /** Returns whether everything is done, whatever the communicators have to tell. */
  final boolean endReached() {
    if (!alive()) {
      return true;
    }
    if (captured()) {
      // Asking would invalidate the capture.
      return false;
    }
    try {
      if (leaving || users.stream().anyMatch(Communicator::aborted)) {
        drain(ABORT_TIMEOUT);
        leaving = false;
        return true;
      }
      return users.stream().noneMatch(user -> user.open() && user.launching()) && idle();
    } catch (NcclTimeoutException stays) {
      return false;
    } catch (CudaException broken) {
      // A device that has failed does no more work; whoever waits for the stream is told.
      return true;
    }
  }

  /** Remembers whose operations this stream carries, and tells them. */
  final void usedBy(Communicator communicator) {
    if (lastUser != communicator) {
      lastUser = communicator;
      if (!users.contains(communicator)) {
        users.removeIf(user -> !user.open() && !user.aborted());
        users.addIfAbsent(communicator);
        communicator.carriedBy(this);
      }
    }
  }

  /**
   * {@return for the backends, the longest time that a communicator on this stream waits for a
   * peer} Without one, that of {@link CommunicatorConfig#defaults}.
   */
  protected final Duration longestTimeoutOfUsers() {
    return users.stream()
        .map(user -> user.config().timeout())
        .max(Duration::compareTo)
        .orElse(CommunicatorConfig.defaults().timeout());
  }

  /**
   * For the backends: tells the users that this stream was given up with work of theirs still on
   * it.
   */
  protected final void tellUsersOfStuckWork() {
    users.forEach(Communicator::leftStuck);
  }

  /**
   * For the backends, while and after they wait: throws what went wrong with a communicator whose
   * operations this stream carries. An abort is told until a {@link #synchronize} has told it,
   * after which the stream goes on without that communicator.
   *
   * @param function the function that waits, for messages
   * @throws CommunicatorAbortedException if one was aborted
   * @throws NcclException if one has failed
   */
  protected final void throwFailureOfUsers(String function) {
    for (Communicator user : users) {
      if (user.aborted()) {
        throw new CommunicatorAbortedException(function, user.toString());
      }
      if (user.open()) {
        user.failure()
            .ifPresent(
                failure -> {
                  throw failure;
                });
      }
    }
  }

  /**
   * {@return what a wait for this stream throws whose time has passed} For the backends. It names
   * the communicators on the stream, and of each the collective that was enqueued last.
   *
   * @param function the function that waits
   * @param timeout how long was waited
   * @param waitedFor what was waited for
   */
  protected final NcclException timedOut(String function, Duration timeout, String waitedFor) {
    List<FailureDetails> last =
        users.stream().filter(Communicator::open).map(Communicator::lastEnqueued).toList();
    String users =
        last.isEmpty()
            ? ""
            : last.stream()
                .map(FailureDetails::where)
                .collect(Collectors.joining(", ", ", last used by ", ""));
    NcclException late = new NcclTimeoutException(function, timeout, waitedFor + users);
    return last.size() == 1 ? late.initDetails(last.getFirst()) : late;
  }

  /**
   * For the backends: adds to a failure of the device what the communicators on this stream say,
   * since theirs may be the cause.
   *
   * @param failure what the device said
   * @return the same failure
   */
  protected final CudaException withFailureOfUsers(CudaException failure) {
    try {
      throwFailureOfUsers("cudaStreamQuery");
    } catch (NcclException another) {
      Steps.suppress(failure, another);
    }
    return failure;
  }

  /**
   * Launches operations of this stream while a recording runs, and sees to it that the span hears
   * when the stream begins and ends them.
   *
   * @param span what records them
   * @param launch enqueues them, from this thread
   */
  protected abstract void enclose(Span span, Runnable launch);

  /**
   * Does what {@link #synchronize(Duration)} promises.
   *
   * @param timeout the longest wait; positive
   */
  protected abstract void await(Duration timeout);

  /**
   * For a communicator that closes: waits until this stream has come to its end, whatever the
   * communicators on it have to tell. An interrupt is kept for later.
   *
   * @param timeout the longest wait; positive
   * @throws NcclTimeoutException if the time has passed
   * @throws CudaException if work on this stream failed
   */
  protected abstract void drain(Duration timeout);

  /**
   * Does what {@link #isComplete} promises.
   *
   * @return whether everything enqueued so far has finished
   */
  protected abstract boolean poll();

  /**
   * Does what {@link #completion} promises.
   *
   * @return a stage that nobody else can complete
   */
  protected abstract CompletionStage<Void> whenComplete();

  /**
   * Does what {@link #record} promises.
   *
   * @param event an open event of this stream's device
   */
  @SuppressWarnings("exports")
  protected abstract void mark(EventDriver event);

  /**
   * Does what {@link #waitFor} promises.
   *
   * @param event an open event of the same backend
   */
  @SuppressWarnings("exports")
  protected abstract void follow(EventDriver event);

  /**
   * Does what {@link Buffer#copyFrom(MemorySegment, Stream)} promises.
   *
   * @param source host memory, of as many bytes as the target
   * @param target an open buffer that this stream's device can use
   */
  protected abstract void upload(MemorySegment source, Buffer target);

  /**
   * Does what {@link Buffer#copyTo} promises.
   *
   * @param source an open buffer that this stream's device can use
   * @param target writable host memory, of as many bytes as the source
   */
  protected abstract void download(Buffer source, MemorySegment target);

  /**
   * Does what {@link Buffer#copyFrom(Buffer, Stream)} promises.
   *
   * @param source an open buffer of the target's type and count
   * @param target an open buffer; this stream's device can use one of the two
   */
  protected abstract void copy(Buffer source, Buffer target);

  /**
   * Does what {@link Buffer#fill} promises.
   *
   * @param target an open buffer that this stream's device can use
   * @param value what every byte becomes
   */
  protected abstract void fill(Buffer target, byte value);

  /**
   * Answers without asking the communicators.
   *
   * @return whether everything enqueued so far has finished
   * @throws CudaException if work on this stream failed
   */
  protected abstract boolean idle();

  /** {@return whether somebody else owns what this stream stands for, and keeps it} */
  protected boolean foreign() {
    return false;
  }

  /**
   * Waits for what is enqueued, for at most the longest timeout of the communicators that it
   * carries, and gives the stream back, also where the wait failed; called once.
   *
   * @throws NcclTimeoutException if the time has passed
   * @throws CudaException if work on this stream failed, or the runtime refuses
   */
  protected abstract void release();

  /**
   * Gives the stream back. Copies that are enqueued are waited for, for at most the longest timeout
   * of the communicators that it carries (30 seconds without any). A collective that is pending is
   * refused: the stream is closed all the same, and is given back when its communicators are closed
   * or aborted. What an aborted communicator has left is waited for. Idempotent. A stream that
   * wraps a foreign one leaves that one alone, and waits for collectives too. C: {@code
   * cudaStreamDestroy}.
   *
   * @throws IllegalStateException if a collective is pending; or if the stream is being captured,
   *     and nothing is done then
   * @throws NcclTimeoutException if the time has passed
   * @throws CudaException if work on this stream failed, or the runtime refuses
   */
  @Override
  public final void close() {
    checkNotCaptured("close");
    if (!closing.compareAndSet(false, true)) {
      return;
    }
    leak.close();
    if (!foreign() && carriesPendingCollective()) {
      abandoned = true;
      progress.keepStream();
      place = Platform.NOWHERE;
      throw new IllegalStateException(
          "stream is closed while a collective of %s is pending on it, which needs it until that is closed or aborted; synchronize first: %s"
              .formatted(lastUser, this));
    }
    place = Platform.NOWHERE;
    giveBack();
  }

  private boolean carriesPendingCollective() {
    return users.stream().anyMatch(Communicator::open) && !progress.passedCollectives();
  }

  private void giveBack() {
    long enqueued = progress.enqueued();
    try {
      release();
    } finally {
      givenBack = true;
    }
    progress.passed(enqueued);
  }

  /** Gives the stream back if it is closed already and no communicator needs it any more. */
  final void giveBackIfAbandoned() {
    if (abandoned && users.stream().noneMatch(Communicator::open)) {
      synchronized (this) {
        if (!abandoned) {
          return;
        }
        abandoned = false;
      }
      giveBack();
    }
  }
}
