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
 * An {@code ncclComm_t} and the ways to call NCCL with it: in this thread or in one of ours with a
 * deadline, and waiting for what a call on a non-blocking communicator has begun.
 */
final class NativeCommunicator {
  // A non-blocking call ends by its own deadline; the thread that makes it gets a little more.
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

  /** Returns whom a call waits for, for messages. */
  String peers() {
    return "the peers of " + this;
  }

  /** Notes whether a call has lasted for too long, which ends the communicator. */
  void markOverdue(boolean overdue) {
    this.overdue = overdue;
  }

  /** Says that the operations end, because the next call ends them. */
  void endOperations() {
    context.markRevoked();
    context.endGraphs();
  }

  /** Prepares a thread of ours for calls of NCCL's. */
  void useDevice() {
    CurrentDevice.set(context.device());
    CaptureMode.relax();
  }

  /** Makes a call in this thread, inside the communicator; throws unless it answers success. */
  void call(String function, ToIntFunction<MemorySegment> call) {
    MemorySegment comm = handle.enter(function);
    try {
      NcclResults.check(handle.guarded(() -> call.applyAsInt(comm)), function);
    } finally {
      handle.leave();
    }
  }

  /** Makes a call by the thread inside, and waits for the end of what it began. */
  void callAndSettle(String function, IntSupplier call) {
    settle(handle.guarded(call), function);
  }

  /** Makes a call that may wait for the peers, and waits for its end, as {@link #inside} does. */
  void callWithDeadline(String function, String waitedFor, ToIntFunction<MemorySegment> call) {
    inside(function, waitedFor, comm -> callAndSettle(function, () -> call.applyAsInt(comm)));
  }

  /**
   * Does inside this communicator what may wait for the peers indefinitely; in a thread of its own,
   * with a deadline.
   */
  void inside(String function, String waitedFor, Consumer<MemorySegment> work) {
    Duration limit = handle.blocking() ? timeout() : timeout().plus(GRACE);
    BlockingCalls.run(function, limit, waitedFor, () -> runInside(function, work));
  }

  /** Does inside this communicator what must not be left half-way; with a deadline. */
  void finishWithDeadline(String function, Consumer<MemorySegment> work) {
    BlockingCalls.runUninterrupted(
        function, timeout(), "NCCL to finish with " + this, () -> runInside(function, work));
  }

  private void runInside(String function, Consumer<MemorySegment> work) {
    useDevice();
    handle.insideForLong(function, work);
  }

  /**
   * Waits until this communicator has finished what it answered "in progress" for, or success where
   * success does not mean the end; throws for any other answer.
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

  /** Returns what a call throws during which this communicator has ended. */
  NcclException endedDuring(String function) {
    return overdue
        ? new NcclTimeoutException(function, timeout(), peers())
        : new CommunicatorAbortedException(function, toString());
  }

  /** Returns what has failed since the communicator was made, or nothing. */
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
