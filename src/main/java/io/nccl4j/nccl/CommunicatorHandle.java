package io.nccl4j.nccl;

import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.NcclException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.internal.cuda.CaptureMode;
import io.nccl4j.internal.cuda.CurrentDevice;
import io.nccl4j.internal.cuda.PrimaryContexts;
import io.nccl4j.internal.ffm.BlockingCalls;
import io.nccl4j.internal.ffm.PlatformThreads;
import io.nccl4j.internal.util.Backoff;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Loggers;
import io.nccl4j.spi.Awaited;
import io.nccl4j.spi.CommunicatorContext;
import io.nccl4j.spi.Contract;
import io.nccl4j.spi.FailureDetails;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.BitSet;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import java.util.function.IntSupplier;
import java.util.function.Supplier;
import java.util.function.ToIntFunction;
import org.apache.logging.log4j.Logger;

/**
 * An {@code ncclComm_t}: who may call NCCL with it, for how long, and who frees it.
 *
 * <p>At most one thread is inside, between {@link #enter} and {@link #leave}; pollers query the
 * state under a lock. Calls that may wait for peers run on an nccl4j thread, with a deadline.
 *
 * <p>Once the communicator has {@linkplain CommunicatorContext#isEnded ended}, no thread can enter.
 * The first thread that then finds no thread inside takes the pointer, once, and frees it: NCCL
 * frees immediately, even if another thread is still in a call. A thread that ends such a call from
 * outside also keeps the communicator from being freed, with {@link #retain}.
 */
final class CommunicatorHandle {
  // Logs under the name of the public class.
  private static final Logger LOG = Loggers.of("io.nccl4j.nccl.NcclCommunicator");

  // A non-blocking call ends by its own deadline; the thread that makes it gets this much longer.
  static final Duration GRACE = Duration.ofSeconds(1);
  private static final long POLL_NANOS = 50_000;

  // The two lowest bits of 'entries' are the state. The other bits count entries, so that one long
  // call can be distinguished from many short ones.
  private static final int EMPTY = 0;
  private static final int ON_CALLERS_THREAD = 1;
  private static final int ON_OWN_THREAD = 2;
  private static final int STATE_MASK = 3;
  private static final int ENTRY_INCREMENT = 4;

  // Never freed (eight bytes): NCCL may write the pointer after a call that returned "in progress"
  // or was abandoned.
  private final MemorySegment cell = Arena.global().allocate(ValueLayout.ADDRESS);
  private final CommunicatorContext context;
  private final NcclVersion library;
  private final Consumer<MemorySegment> free;

  // As NCCL created it, which may differ from the configuration.
  private boolean blocking;
  private MemorySegment pointer = MemorySegment.NULL;
  private volatile boolean taken;
  private boolean retained;
  // What a call waits for that has exceeded its timeout, which ends the communicator; or null.
  private volatile Awaited overdue;

  private final AtomicInteger entries = new AtomicInteger();

  // The function that the thread inside calls, for messages.
  private String function;

  // Accessed without ordering: a stale value only repeats the preparation of a thread.
  private Thread lastThread;

  /**
   * Creates a handle without a pointer.
   *
   * @param blocking whether the communicator is expected to be blocking
   * @param free frees the pointer of the ended communicator, once no thread is inside
   */
  CommunicatorHandle(
      CommunicatorContext context,
      NcclVersion library,
      boolean blocking,
      Consumer<MemorySegment> free) {
    this.context = context;
    this.library = library;
    this.blocking = blocking;
    this.free = free;
  }

  CommunicatorContext context() {
    return context;
  }

  NcclVersion library() {
    return library;
  }

  /** Returns the address at which NCCL writes the pointer. */
  MemorySegment cell() {
    return cell;
  }

  /** Returns whether NCCL has written a pointer. */
  boolean created() {
    return written().address() != 0;
  }

  private MemorySegment written() {
    return (MemorySegment) ValueLayout.ADDRESS.varHandle().getVolatile(cell, 0L);
  }

  /** Returns whether the communicator is or will be blocking. */
  boolean blocking() {
    return blocking;
  }

  /** Returns whether an abort ends another thread's call that enqueues an operation. */
  boolean abortEndsCalls() {
    return !blocking || library.has(FeatureVersions.REVOKE);
  }

  /** Makes a call during which no thread can query the state of a non-blocking communicator. */
  int guarded(IntSupplier call) {
    if (blocking) {
      return call.getAsInt();
    }
    synchronized (this) {
      return call.getAsInt();
    }
  }

  /**
   * Enters the communicator and returns the pointer for calls.
   *
   * @throws CommunicatorAbortedException if the communicator has ended
   * @throws IllegalStateException if another thread is inside
   */
  MemorySegment enter(String functionName) {
    prepareThread(functionName);
    if (!tryEnter(functionName, ON_CALLERS_THREAD)) {
      throw refusal(functionName);
    }
    return pointer;
  }

  /**
   * Makes long calls inside the communicator. Messages to other threads mention that. Waits for a
   * revoke, since the watchdog may have begun it, of which the caller need not know.
   */
  void insideOnOwnThread(String function, Consumer<MemorySegment> calls) {
    Deadline deadline = Deadline.after(timeout());
    while (!tryEnter(function, ON_OWN_THREAD)) {
      if (!context.isRevoked() || ended() || deadline.passed()) {
        throw refusal(function);
      }
      LockSupport.parkNanos(POLL_NANOS);
    }
    try {
      calls.accept(pointer);
    } finally {
      leave();
    }
  }

  /**
   * Enters the communicator for the last call. New calls are already rejected, but waits for a call
   * that was checked just before.
   */
  MemorySegment enterToEnd(String function, Duration timeout) {
    Deadline deadline = Deadline.after(timeout);
    while (!tryEnter(function, ON_OWN_THREAD)) {
      if (ended() || deadline.passed()) {
        throw refusal(function);
      }
      LockSupport.parkNanos(POLL_NANOS);
    }
    return pointer;
  }

  /**
   * Prepares the calling thread, unless it was the last one here. After a launch, NCCL restores the
   * device that was current before. That would create a context on device 0, if the thread never
   * chose a device.
   */
  private void prepareThread(String functionName) {
    Thread thread = Thread.currentThread();
    if (thread == lastThread) {
      return;
    }
    PlatformThreads.require(functionName);
    if (!PrimaryContexts.active(CurrentDevice.get())) {
      CurrentDevice.set(context.device());
    }
    lastThread = thread;
  }

  private boolean tryEnter(String functionName, int state) {
    int now = entries.get();
    if ((now & STATE_MASK) != EMPTY || !entries.compareAndSet(now, now + ENTRY_INCREMENT + state)) {
      return false;
    }
    function = functionName;
    // An abort ends the communicator and then reads 'entries': this thread sees the end, or the
    // abort sees this thread inside.
    if (ended()) {
      leave();
      return false;
    }
    return true;
  }

  private RuntimeException refusal(String functionName) {
    if (!ended()) {
      return inUse(entries.get() & STATE_MASK);
    }
    return context.isAborted()
        ? new CommunicatorAbortedException(functionName, context.toString())
        : new IllegalStateException("closed: " + context);
  }

  private IllegalStateException inUse(int state) {
    String by =
        state == ON_OWN_THREAD
            ? " is in use by another thread, or by a call that timed out, in " + function
            : " is in use by another thread, in " + function;
    boolean ends = abortEndsCalls() && (state != ON_OWN_THREAD || !blocking);
    return new IllegalStateException(
        context
            + by
            + "; one thread at a time may use a communicator"
            + (ends ? ", and abort ends its call" : ""));
  }

  /** Returns a number that identifies the call of {@link #enter}, or 0 if there is none. */
  int watchedCall() {
    int now = entries.get();
    return (now & STATE_MASK) == ON_CALLERS_THREAD ? now : 0;
  }

  /** Returns the function that the thread inside calls, or the last one; for messages. */
  String function() {
    return function;
  }

  /** Leaves the communicator. If it has ended in the meantime, this thread frees it. */
  void leave() {
    entries.set(entries.get() & ~STATE_MASK);
    if (ended()) {
      freeIfUnused();
    }
  }

  /** Aborts the ended communicator, unless a thread is inside; that thread aborts it later. */
  void freeIfUnused() {
    MemorySegment taken = take();
    if (taken != null) {
      free.accept(taken);
    }
  }

  /**
   * Reads the pointer that NCCL has written; {@link #enter} returns it from then on. Called by the
   * thread inside.
   *
   * @param createdBlocking whether NCCL has created a blocking communicator
   */
  void publish(boolean createdBlocking) {
    synchronized (this) {
      blocking = createdBlocking;
      pointer = written();
    }
  }

  /** Returns the pointer. Called by the thread inside. */
  MemorySegment pointer() {
    return pointer;
  }

  /** Returns whether the communicator was aborted or closed, so that no further call may begin. */
  boolean ended() {
    return taken || context.isEnded();
  }

  /** Waits up to a timeout until no thread is inside. */
  void awaitEmpty(Duration timeout) {
    Deadline deadline = Deadline.after(timeout);
    while (occupied() && !deadline.passed()) {
      LockSupport.parkNanos(POLL_NANOS);
    }
  }

  private boolean occupied() {
    return (entries.get() & STATE_MASK) != EMPTY;
  }

  /**
   * Keeps the ended communicator from being freed until {@link #release}, so that this thread can
   * make a call while another thread is inside. Returns its pointer, or null if it has been freed
   * or was never created.
   */
  MemorySegment retain() {
    synchronized (this) {
      if (taken || retained || pointer.address() == 0) {
        return null;
      }
      retained = true;
      return pointer;
    }
  }

  /** Ends the retention. If no thread is inside any more, this thread frees the communicator. */
  void release() {
    synchronized (this) {
      retained = false;
    }
    freeIfUnused();
  }

  /**
   * Takes the pointer, to free it. Returns null if a thread is inside or retains it, if it was
   * taken already, or if NCCL never wrote one.
   */
  private MemorySegment take() {
    synchronized (this) {
      if (taken || retained || occupied() || !created()) {
        return null;
      }
      taken = true;
      return written();
    }
  }

  /** Takes the pointer for the thread that is inside, which then frees it. No thread can follow. */
  MemorySegment takeInside() {
    synchronized (this) {
      taken = true;
      return pointer;
    }
  }

  /** Allows the pointer to be taken again, since NCCL refused to destroy the communicator. */
  void giveBack() {
    synchronized (this) {
      taken = false;
    }
  }

  /** Returns the communicator's {@code ncclResult_t}, or success once the pointer was taken. */
  int asyncResult() {
    synchronized (this) {
      if (taken) {
        return nccl_h.ncclSuccess();
      }
      if (!created()) {
        return nccl_h.ncclInProgress();
      }
      try (Arena arena = Arena.ofConfined()) {
        MemorySegment state = arena.allocate(ValueLayout.JAVA_INT);
        NcclResults.check(nccl_h.ncclCommGetAsyncError(written(), state), "ncclCommGetAsyncError");
        return state.get(ValueLayout.JAVA_INT, 0);
      }
    }
  }

  Duration timeout() {
    return context.timeout();
  }

  /** Describes the peers that a call waits for, for messages. */
  String peers() {
    return "the peers of " + this;
  }

  /** Returns what a launch waits for. Asks other processes, for a few seconds. */
  Awaited awaited() {
    try {
      return context
          .awaited()
          .map(known -> new Awaited(peers() + "; " + known.text(), known.ranks(), known.failed()))
          .orElseGet(this::unknownPeers);
    } catch (RuntimeException | Error e) {
      LOG.warn("{}: it is not known which ranks are late", this, e);
      return unknownPeers();
    }
  }

  private Awaited unknownPeers() {
    return new Awaited(peers(), new BitSet());
  }

  /** Records what a call waits for that has exceeded its timeout, which ends the communicator. */
  void markOverdue(Awaited awaited) {
    this.overdue = awaited;
  }

  /** Records that the operations are revoked. Called before the native call that ends them. */
  void endOperations() {
    context.markRevoked();
    context.endGraphs();
  }

  /** Prepares an nccl4j thread for NCCL calls. */
  void useDevice() {
    CurrentDevice.set(context.device());
    CaptureMode.relax();
  }

  /** Makes a call inside the communicator on this thread, and checks its result. */
  void call(String function, ToIntFunction<MemorySegment> call) {
    MemorySegment comm = enter(function);
    try {
      NcclResults.check(guarded(() -> call.applyAsInt(comm)), function);
    } finally {
      leave();
    }
  }

  /** Makes a call, and waits until it has completed. Called by the thread inside. */
  void callAndSettle(String function, IntSupplier call) {
    settle(guarded(call), function);
  }

  /** Makes a call that may wait for the peers, and waits for it, with a deadline. */
  void callWithDeadline(String function, String waitedFor, ToIntFunction<MemorySegment> call) {
    inside(function, waitedFor, comm -> callAndSettle(function, () -> call.applyAsInt(comm)));
  }

  /**
   * Runs work inside this communicator that may wait for the peers indefinitely. Runs on a separate
   * thread, with a deadline.
   */
  void inside(String function, String waitedFor, Consumer<MemorySegment> work) {
    Duration limit = blocking ? timeout() : timeout().plus(GRACE);
    BlockingCalls.run(function, limit, waitedFor, () -> runInside(function, work));
  }

  /** Runs uninterruptible work inside this communicator, with a deadline. */
  void finishWithDeadline(String function, Consumer<MemorySegment> work) {
    BlockingCalls.runUninterrupted(
        function, timeout(), "NCCL to finish with " + this, () -> runInside(function, work));
  }

  private void runInside(String function, Consumer<MemorySegment> work) {
    useDevice();
    insideOnOwnThread(function, work);
  }

  /**
   * Waits until this communicator has completed a call that returned "in progress", or that
   * returned success before it has completed. Throws for any other result.
   */
  void settle(int result, String function) {
    settle(result, function, this::unknownPeers);
  }

  /** Waits as {@link #settle(int, String)} does, for a launch. */
  void settleLaunch(int result, String function) {
    settle(result, function, this::awaited);
  }

  private void settle(int result, String function, Supplier<Awaited> awaited) {
    if (result != nccl_h.ncclInProgress()) {
      if (result != nccl_h.ncclSuccess() && ended()) {
        throw endException(function);
      }
      NcclResults.check(result, function);
    }
    Backoff backoff = Backoff.betweenQueries(Deadline.after(timeout()));
    while (true) {
      int state = asyncResult();
      if (ended()) {
        throw endException(function);
      }
      if (state != nccl_h.ncclInProgress()) {
        NcclResults.check(state, function);
        return;
      }
      if (!BlockingCalls.pause(backoff, function)) {
        throw late(function, awaited.get());
      }
    }
  }

  /** Returns the exception for a call during which this communicator has ended. */
  NcclException endException(String function) {
    Awaited awaited = overdue;
    return awaited == null
        ? new CommunicatorAbortedException(function, toString())
        : late(function, awaited);
  }

  private NcclException late(String function, Awaited awaited) {
    NcclException late = new NcclTimeoutException(function, timeout(), awaited.text());
    FailureDetails ranks = FailureDetails.of(toString(), awaited.failed(), awaited.ranks());
    return Contract.get().initDetails(late, ranks);
  }

  /** Returns the asynchronous error of the communicator, if there is one. */
  Optional<NcclException> asyncError() {
    int state = asyncResult();
    return state == nccl_h.ncclSuccess() || state == nccl_h.ncclInProgress()
        ? Optional.empty()
        : Optional.of(NcclResults.failure(state, "ncclCommGetAsyncError"));
  }

  @Override
  public String toString() {
    return context.toString();
  }
}
