package io.nccl4j.nccl;

import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.NcclException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.internal.BlockingCalls;
import io.nccl4j.internal.CaptureMode;
import io.nccl4j.internal.NcclResults;
import io.nccl4j.internal.cuda.CurrentDevice;
import io.nccl4j.internal.util.Backoff;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.spi.CommunicatorContext;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.Optional;
import java.util.function.Consumer;
import java.util.function.IntSupplier;
import java.util.function.ToIntFunction;

/**
 * Calls NCCL with an {@code ncclComm_t}: on the caller's thread, or on an nccl4j thread with a
 * deadline. Also waits for operations that a call on a non-blocking communicator has started.
 */
final class NativeCommunicator {
  // A non-blocking call ends by its own deadline; the thread that makes it gets this much longer.
  static final Duration GRACE = Duration.ofSeconds(1);

  private final CommunicatorHandle handle;
  private final CommunicatorContext context;
  private volatile boolean overdue;

  NativeCommunicator(CommunicatorHandle handle) {
    this.handle = handle;
    this.context = handle.context();
  }

  CommunicatorContext context() {
    return context;
  }

  NcclVersion library() {
    return handle.library();
  }

  CommunicatorHandle handle() {
    return handle;
  }

  Duration timeout() {
    return context.config().timeout();
  }

  /** Describes the peers that a call waits for, for messages. */
  String peers() {
    return "the peers of " + this;
  }

  /** Records whether a call has exceeded its timeout, which ends the communicator. */
  void markOverdue(boolean overdue) {
    this.overdue = overdue;
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
    MemorySegment comm = handle.enter(function);
    try {
      NcclResults.check(handle.guarded(() -> call.applyAsInt(comm)), function);
    } finally {
      handle.leave();
    }
  }

  /** Makes a call, and waits until it has completed. Called by the thread inside. */
  void callAndSettle(String function, IntSupplier call) {
    settle(handle.guarded(call), function);
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
    Duration limit = handle.blocking() ? timeout() : timeout().plus(GRACE);
    BlockingCalls.run(function, limit, waitedFor, () -> runInside(function, work));
  }

  /** Runs uninterruptible work inside this communicator, with a deadline. */
  void finishWithDeadline(String function, Consumer<MemorySegment> work) {
    BlockingCalls.runUninterrupted(
        function, timeout(), "NCCL to finish with " + this, () -> runInside(function, work));
  }

  private void runInside(String function, Consumer<MemorySegment> work) {
    useDevice();
    handle.insideForLong(function, work);
  }

  /**
   * Waits until this communicator has completed a call that returned "in progress", or that
   * returned success before it has completed. Throws for any other result.
   */
  void settle(int result, String function) {
    if (result != nccl_h.ncclInProgress()) {
      if (result != nccl_h.ncclSuccess() && handle.ended()) {
        throw endedDuring(function);
      }
      NcclResults.check(result, function);
    }
    Backoff backoff = Backoff.betweenQueries(Deadline.after(timeout()));
    while (true) {
      int state = handle.state();
      if (handle.ended()) {
        throw endedDuring(function);
      }
      if (state != nccl_h.ncclInProgress()) {
        NcclResults.check(state, function);
        return;
      }
      if (!BlockingCalls.pause(backoff, function)) {
        throw new NcclTimeoutException(function, timeout(), peers());
      }
    }
  }

  /** Returns the exception for a call during which this communicator has ended. */
  NcclException endedDuring(String function) {
    return overdue
        ? new NcclTimeoutException(function, timeout(), peers())
        : new CommunicatorAbortedException(function, toString());
  }

  /** Returns the asynchronous error of the communicator, if there is one. */
  Optional<NcclException> asyncError() {
    int state = handle.state();
    return state == nccl_h.ncclSuccess() || state == nccl_h.ncclInProgress()
        ? Optional.empty()
        : Optional.of(NcclResults.failure(state, "ncclCommGetAsyncError"));
  }

  @Override
  public String toString() {
    return context.toString();
  }
}
