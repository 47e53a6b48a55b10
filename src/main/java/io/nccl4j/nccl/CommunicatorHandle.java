package io.nccl4j.nccl;

import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.internal.Membarrier;
import io.nccl4j.internal.NcclResults;
import io.nccl4j.internal.PlatformThreads;
import io.nccl4j.internal.PrimaryContexts;
import io.nccl4j.internal.cuda.CurrentDevice;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.spi.CommunicatorContext;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.time.Duration;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import java.util.function.IntSupplier;

/**
 * An {@code ncclComm_t} and who may touch it when.
 *
 * <p>One thread at a time is inside, between {@link #enter} and {@link #leave}; pollers ask for the
 * state under a lock. {@link #end} lets nobody in any more. The thread that then finds nobody
 * inside takes the communicator, once, to free it: NCCL frees at once, even while another thread is
 * still in a call. Ending such a call from outside holds the communicator too, with {@link
 * #retain}.
 */
final class CommunicatorHandle {
  private static final VarHandle INSIDE;
  private static final long LOOK_NANOS = 50_000;

  // What the two lowest bits of 'inside' say. The others count entries, so that one long call
  // differs from many short ones.
  private static final int NOBODY = 0;
  private static final int ENQUEUING = 1;
  private static final int LASTING = 2;
  private static final int WHAT = 3;
  private static final int ENTRY = 4;

  static {
    try {
      INSIDE = MethodHandles.lookup().findVarHandle(CommunicatorHandle.class, "inside", int.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  // NCCL may write the pointer late, after a call that answered "in progress" or was given up:
  // eight bytes that stay.
  private final MemorySegment cell = Arena.global().allocate(ValueLayout.ADDRESS);
  private final CommunicatorContext context;
  private final NcclVersion library;
  private final Runnable free;

  // As NCCL has it; what the configuration says may not be what it is.
  private boolean blocking;
  private boolean direct;
  private MemorySegment pointer = MemorySegment.NULL;
  private long address;
  private volatile boolean ended;
  private boolean taken;
  private boolean freeing;
  private boolean held;

  @SuppressWarnings("UnusedVariable") // Through INSIDE.
  private int inside;

  // The function that the thread inside calls, for messages.
  private String function;

  // Read and written without order: what it decides may be decided again.
  private Thread lastThread;

  /**
   * Makes room for a pointer.
   *
   * @param blocking whether the communicator will be a blocking one, as far as is known
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

  /** Returns where NCCL is to write the pointer. */
  MemorySegment cell() {
    return cell;
  }

  /** Returns whether NCCL has written a pointer. */
  boolean made() {
    return written().address() != 0;
  }

  private MemorySegment written() {
    return (MemorySegment) ValueLayout.ADDRESS.varHandle().getVolatile(cell, 0L);
  }

  /** Returns whether NCCL has made, or will make, a blocking communicator. */
  boolean blocking() {
    return blocking;
  }

  /** Returns whether operations need no condition beyond one thread at a time. */
  boolean direct() {
    return direct;
  }

  /** Notes that NCCL has made a blocking communicator of several ranks. */
  void markDirect() {
    direct = true;
  }

  /** Returns whether an abort ends a call that another thread makes to enqueue something. */
  boolean abortEndsCalls() {
    return !blocking || library.has(FeatureVersions.REVOKE);
  }

  /** Makes a call during which nobody may ask a non-blocking communicator for its state. */
  int guarded(IntSupplier call) {
    if (blocking) {
      return call.getAsInt();
    }
    synchronized (this) {
      return call.getAsInt();
    }
  }

  /**
   * Lets this thread in and returns the pointer for its calls.
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

  /** Lets this thread in for calls that can last, which a message to other threads says. */
  void insideForLong(String function, Consumer<MemorySegment> calls) {
    if (!tryEnter(function, LASTING)) {
      throw refusal(function);
    }
    try {
      calls.accept(pointer);
    } finally {
      leave();
    }
  }

  /**
   * Lets this thread in for the last call. Nobody else may enter by then, but a call that was
   * checked just before may still be inside, and is waited for.
   */
  MemorySegment enterToEnd(String function, Duration patience) {
    Deadline deadline = Deadline.after(patience);
    while (!tryEnter(function, LASTING)) {
      if (ended || deadline.passed()) {
        throw refusal(function);
      }
      LockSupport.parkNanos(LOOK_NANOS);
    }
    return pointer;
  }

  /** Lets this thread in to enqueue; false where {@link #refusal} says why not. */
  boolean tryEnter(String called) {
    admit(called);
    return tryEnter(called, ENQUEUING);
  }

  /**
   * Prepares a thread that was not here last. NCCL makes the device that it finds current current
   * again after a launch, which would create a context on it: on device 0, in a thread that never
   * chose one.
   */
  private void admit(String called) {
    Thread thread = Thread.currentThread();
    if (thread == lastThread) {
      return;
    }
    PlatformThreads.require(called);
    if (!PrimaryContexts.active(CurrentDevice.get())) {
      CurrentDevice.set(context.device());
    }
    lastThread = thread;
  }

  private boolean tryEnter(String called, int what) {
    int now = (int) INSIDE.getOpaque(this);
    if ((now & WHAT) != NOBODY) {
      return false;
    }
    INSIDE.setOpaque(this, now + ENTRY + what);
    // Names are literals. Mostly it is the same one, and storing a reference costs more than
    // comparing it.
    if (function != called) {
      function = called;
    }
    // An abort sets 'ended', then fences every thread, then looks at 'inside': one of the two sees
    // the other.
    if (ended) {
      leave();
      return false;
    }
    return true;
  }

  RuntimeException refusal(String called) {
    if (!ended) {
      return occupied((int) INSIDE.getOpaque(this) & WHAT);
    }
    return context.isAborted()
        ? new CommunicatorAbortedException(called, context.toString())
        : new IllegalStateException("closed: " + context);
  }

  private IllegalStateException occupied(int what) {
    String by =
        what == LASTING
            ? " is in use by another thread, or by one that a time-out has left in " + function
            : " is in use by another thread, in " + function;
    boolean ends = abortEndsCalls() && (what != LASTING || !blocking);
    return new IllegalStateException(
        context
            + by
            + "; one thread at a time may use a communicator"
            + (ends ? ", and abort ends its call" : ""));
  }

  /** Returns a number that is another one for each call that enqueues, or 0 outside such calls. */
  int enqueuing() {
    int now = (int) INSIDE.getOpaque(this);
    return (now & WHAT) == ENQUEUING ? now : 0;
  }

  /** Returns the function of the call that enqueues, or null outside such calls. */
  String enqueuingFunction() {
    return enqueuing() == 0 ? null : function;
  }

  /** Lets this thread out; if the communicator ended meanwhile, this thread frees it. */
  void leave() {
    INSIDE.setRelease(this, (int) INSIDE.getOpaque(this) & ~WHAT);
    if (ended) {
      free.run();
    }
  }

  /** Has the ended communicator aborted unless a thread is inside, which then does so itself. */
  void freeIfNobodyInside() {
    free.run();
  }

  /**
   * Makes the pointer that NCCL has written the one that {@link #enter} returns; by the thread
   * inside.
   *
   * @param madeBlocking whether NCCL has made a blocking communicator
   */
  void publish(boolean madeBlocking) {
    synchronized (this) {
      blocking = madeBlocking;
      pointer = written();
      address = pointer.address();
    }
  }

  /** Returns the pointer; for the thread inside. */
  MemorySegment pointer() {
    return pointer;
  }

  /** Returns the pointer as a number; for the thread inside. */
  long address() {
    return address;
  }

  boolean ended() {
    return ended;
  }

  /** Lets nobody in any more, and waits a while for a thread that is inside. */
  void end(Duration patience) {
    ended = true;
    Membarrier.run();
    awaitNobody(patience);
  }

  /** Waits a while until nobody is inside. */
  void awaitNobody(Duration patience) {
    Deadline deadline = Deadline.after(patience);
    while (occupied() && !deadline.passed()) {
      LockSupport.parkNanos(LOOK_NANOS);
    }
  }

  private boolean occupied() {
    return ((int) INSIDE.getAcquire(this) & WHAT) != NOBODY;
  }

  /**
   * Keeps the ended communicator from being freed until {@link #release}, for a call beside that of
   * the thread inside. Returns its pointer, or null if it has been freed or never came to be.
   */
  MemorySegment retain() {
    synchronized (this) {
      if (taken || held || pointer.address() == 0) {
        return null;
      }
      held = true;
      return pointer;
    }
  }

  /** Ends the hold. If nobody is inside any more, this thread frees the communicator. */
  void release() {
    synchronized (this) {
      held = false;
    }
    free.run();
  }

  /**
   * Returns the pointer for the caller to free, or null if a thread is inside or holds it, it has
   * been taken already, or NCCL never wrote one.
   */
  MemorySegment take() {
    synchronized (this) {
      if (taken || held || occupied() || !made()) {
        return null;
      }
      taken = true;
      return written();
    }
  }

  /** Takes the pointer for the one thread that is inside, which then frees it; nobody follows. */
  MemorySegment takeInside() {
    synchronized (this) {
      taken = true;
      ended = true;
      return pointer;
    }
  }

  /**
   * Returns whether the calling thread, which was started to free what has been taken, is to do so.
   */
  boolean beginFreeing() {
    synchronized (this) {
      boolean begins = taken && !freeing;
      freeing |= begins;
      return begins;
    }
  }

  /**
   * Lets the pointer be taken again, unless a thread frees it: the one that was to may not have
   * started, and NCCL can refuse to destroy it.
   */
  void releaseUnlessFreeing() {
    synchronized (this) {
      taken = freeing;
    }
  }

  /** Returns the communicator's {@code ncclResult_t}; success once nobody may ask any more. */
  int state() {
    synchronized (this) {
      if (taken) {
        return nccl_h.ncclSuccess();
      }
      if (!made()) {
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
