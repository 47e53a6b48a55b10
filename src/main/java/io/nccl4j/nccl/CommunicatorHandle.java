package io.nccl4j.nccl;

import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.internal.NcclResults;
import io.nccl4j.internal.PlatformThreads;
import io.nccl4j.internal.PrimaryContexts;
import io.nccl4j.internal.cuda.CurrentDevice;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.spi.CommunicatorContext;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import java.util.function.IntSupplier;

/**
 * An {@code ncclComm_t}, and the synchronization of access to it.
 *
 * <p>At most one thread is inside, between {@link #enter} and {@link #leave}; pollers query the
 * state under a lock. After {@link #end}, no thread can enter. The first thread that then finds no
 * thread inside takes the communicator, once, and frees it: NCCL frees immediately, even if another
 * thread is still in a call. A thread that ends such a call from outside also keeps the
 * communicator from being freed, with {@link #retain}.
 */
final class CommunicatorHandle {
  private static final long POLL_NANOS = 50_000;

  // The two lowest bits of 'inside' are the state. The other bits count entries, so that one long
  // call can be distinguished from many short ones.
  private static final int EMPTY = 0;
  private static final int ENQUEUING = 1;
  private static final int LONG_CALL = 2;
  private static final int STATE_MASK = 3;
  private static final int ENTRY_INCREMENT = 4;

  // Never freed (eight bytes): NCCL may write the pointer after a call that returned "in progress"
  // or was abandoned.
  private final MemorySegment cell = Arena.global().allocate(ValueLayout.ADDRESS);
  private final CommunicatorContext context;
  private final NcclVersion library;
  private final Runnable free;

  // As NCCL created it, which may differ from the configuration.
  private boolean blocking;
  private boolean direct;
  private MemorySegment pointer = MemorySegment.NULL;
  private volatile boolean ended;
  private boolean taken;
  private boolean freeing;
  private boolean retained;

  private final AtomicInteger inside = new AtomicInteger();

  // The function that the thread inside calls, for messages.
  private String function;

  // Accessed without ordering: a stale value only repeats the preparation of a thread.
  private Thread lastThread;

  /**
   * Creates a handle without a pointer.
   *
   * @param blocking whether the communicator is expected to be blocking
   * @param free aborts the ended communicator, unless a thread is inside it
   */
  CommunicatorHandle(
      CommunicatorContext context, NcclVersion library, boolean blocking, Runnable free) {
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

  /** Returns whether operations need no synchronization beyond one thread at a time. */
  boolean direct() {
    return direct;
  }

  /** Records that NCCL has created a blocking communicator of several ranks. */
  void markDirect() {
    direct = true;
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
  MemorySegment enter(String function) {
    if (!tryEnter(function)) {
      throw refusal(function);
    }
    return pointer;
  }

  /** Makes long calls inside the communicator. Messages to other threads mention that. */
  void insideForLong(String function, Consumer<MemorySegment> calls) {
    if (!tryEnter(function, LONG_CALL)) {
      throw refusal(function);
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
    while (!tryEnter(function, LONG_CALL)) {
      if (ended || deadline.passed()) {
        throw refusal(function);
      }
      LockSupport.parkNanos(POLL_NANOS);
    }
    return pointer;
  }

  /** Enters the communicator to enqueue; if it returns false, {@link #refusal} is the reason. */
  boolean tryEnter(String functionName) {
    prepareThread(functionName);
    return tryEnter(functionName, ENQUEUING);
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
    int now = inside.get();
    if ((now & STATE_MASK) != EMPTY || !inside.compareAndSet(now, now + ENTRY_INCREMENT + state)) {
      return false;
    }
    function = functionName;
    // An abort sets 'ended' and then reads 'inside': this thread sees 'ended', or the abort sees
    // this thread inside.
    if (ended) {
      leave();
      return false;
    }
    return true;
  }

  RuntimeException refusal(String functionName) {
    if (!ended) {
      return occupied(inside.get() & STATE_MASK);
    }
    return context.isAborted()
        ? new CommunicatorAbortedException(functionName, context.toString())
        : new IllegalStateException("closed: " + context);
  }

  private IllegalStateException occupied(int state) {
    String by =
        state == LONG_CALL
            ? " is in use by another thread, or by a call that timed out, in " + function
            : " is in use by another thread, in " + function;
    boolean ends = abortEndsCalls() && (state != LONG_CALL || !blocking);
    return new IllegalStateException(
        context
            + by
            + "; one thread at a time may use a communicator"
            + (ends ? ", and abort ends its call" : ""));
  }

  /** Returns a number that identifies the current enqueuing call, or 0 if there is none. */
  int enqueuing() {
    int now = inside.get();
    return (now & STATE_MASK) == ENQUEUING ? now : 0;
  }

  /** Returns the function of the current enqueuing call, or null if there is none. */
  String enqueuingFunction() {
    return enqueuing() == 0 ? null : function;
  }

  /** Leaves the communicator. If it has ended in the meantime, this thread frees it. */
  void leave() {
    inside.set(inside.get() & ~STATE_MASK);
    if (ended) {
      free.run();
    }
  }

  /** Aborts the ended communicator, unless a thread is inside; that thread aborts it later. */
  void freeIfUnused() {
    free.run();
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

  boolean ended() {
    return ended;
  }

  /** Rejects new calls, and waits up to a timeout for a thread that is inside. */
  void end(Duration timeout) {
    ended = true;
    awaitEmpty(timeout);
  }

  /** Waits up to a timeout until no thread is inside. */
  void awaitEmpty(Duration timeout) {
    Deadline deadline = Deadline.after(timeout);
    while (occupied() && !deadline.passed()) {
      LockSupport.parkNanos(POLL_NANOS);
    }
  }

  private boolean occupied() {
    return (inside.get() & STATE_MASK) != EMPTY;
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
    free.run();
  }

  /**
   * Takes the pointer for the caller to free. Returns null if a thread is inside or retains it, if
   * it was taken already, or if NCCL never wrote one.
   */
  MemorySegment take() {
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
      ended = true;
      return pointer;
    }
  }

  /**
   * Returns whether the calling thread, which was started to free the taken pointer, must do so.
   */
  boolean beginFreeing() {
    synchronized (this) {
      boolean begins = taken && !freeing;
      freeing |= begins;
      return begins;
    }
  }

  /**
   * Allows the pointer to be taken again, unless a thread is freeing it: that thread may not have
   * started, or NCCL may have refused to destroy the communicator.
   */
  void releaseUnlessFreeing() {
    synchronized (this) {
      taken = freeing;
    }
  }

  /** Returns the communicator's {@code ncclResult_t}, or success once the pointer was taken. */
  int state() {
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
}
