package io.nccl4j.nccl;

import io.nccl4j.NcclException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.internal.ffm.BlockingCalls;
import io.nccl4j.internal.util.CloseAll;
import io.nccl4j.internal.util.Loggers;
import io.nccl4j.spi.Awaited;
import io.nccl4j.spi.CommunicatorContext;
import io.nccl4j.spi.CommunicatorDriver;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import org.apache.logging.log4j.Logger;

/**
 * Ends an {@code ncclComm_t}: by a close, by an abort, or by an abort after a call has exceeded its
 * timeout. A revoke ends only its operations.
 */
final class CommunicatorEnd {
  // Logs under the name of the public class.
  private static final Logger LOG = Loggers.of("io.nccl4j.nccl.NcclCommunicator");

  // How long a close waits for a call in flight before it fails. Also how long an abort waits
  // before it ends that call.
  private static final Duration CALL_TIMEOUT = Duration.ofMillis(200);
  // How long an abort waits for NCCL, which then goes on in the background.
  private static final Duration ABORT_TIMEOUT = Duration.ofSeconds(30);
  // How long the thread of a call that NCCL has ended may take to leave.
  private static final Duration LEAVE_TIMEOUT = Duration.ofSeconds(1);
  private static final double MILLIS_PER_SECOND = 1000;

  /** What a call waits for, asked before its timeout. */
  private record LateCall(int call, CompletableFuture<Awaited> awaited) {}

  private final CommunicatorContext context;
  private final CommunicatorHandle handle;
  private final NcclVersion library;
  private final Registrations registrations;
  private final Suspension suspension;
  private final NativeChildren children;
  private final Runnable noMoreKernels;
  private volatile boolean revoked;
  private volatile LateCall late = new LateCall(0, null);
  // Whether ncclCommDestroy has freed the communicator.
  private volatile boolean freed;

  /**
   * Creates the end of a communicator and of the parts that end with it.
   *
   * @param noMoreKernels records that no kernel of the communicator can run in this process any
   *     more; idempotent
   */
  CommunicatorEnd(
      CommunicatorHandle handle,
      Registrations registrations,
      Suspension suspension,
      NativeChildren children,
      Runnable noMoreKernels) {
    this.context = handle.context();
    this.handle = handle;
    this.library = handle.library();
    this.registrations = registrations;
    this.suspension = suspension;
    this.children = children;
    this.noMoreKernels = noMoreKernels;
  }

  CommunicatorHandle handle() {
    return handle;
  }

  /** Implements {@link NcclCommunicator#revoke}. */
  void revoke() {
    String function = "ncclCommRevoke";
    library.require(function);
    if (revoked) {
      return;
    }
    if (!context.isRevoked()) {
      context.checkConnected();
    }
    handle.inside(
        function,
        handle.peers(),
        comm -> {
          if (revoked) {
            return; // by a thread that was inside before
          }
          handle.endOperations();
          handle.callAndSettle(
              function, () -> nccl_h.ncclCommRevoke(comm, nccl_h.NCCL_REVOKE_DEFAULT()));
          revoked = true;
        });
  }

  /** Implements {@link CommunicatorDriver#revoke}. */
  boolean tryRevoke() {
    if (!library.has(FeatureVersions.REVOKE)) {
      return false;
    }
    try {
      revoke();
      return true;
    } catch (NcclException | IllegalStateException refused) {
      // Such as by a thread that is inside; an abort ends its call.
      LOG.debug("{}: the operations were not revoked", handle, refused);
      return false;
    }
  }

  /**
   * Logs which ranks a long call waits for.
   *
   * @param call the handle's number of the call
   */
  void warnOfCall(int call, Duration duration) {
    BlockingCalls.start(
        "warning",
        () -> {
          String function = handle.function();
          Awaited awaited = handle.awaited();
          if (handle.watchedCall() == call) {
            LOG.warn(
                "{}: {} has been inside NCCL for {} s: {}",
                handle,
                function,
                duration.toMillis() / MILLIS_PER_SECOND,
                awaited.text());
          }
        });
  }

  /** Finds out which ranks a call waits for that may soon exceed the timeout. */
  void askAboutCall(int call) {
    Executor thread = work -> BlockingCalls.start("lost-ranks", work);
    late = new LateCall(call, CompletableFuture.supplyAsync(handle::awaited, thread));
  }

  /**
   * Ends a call that has exceeded the timeout, if NCCL allows it; otherwise logs a warning.
   *
   * @param call the handle's number of the call
   */
  void endOverdueCall(int call) {
    if (!handle.abortEndsCalls()) {
      LOG.warn(
          "{}: {} has been inside NCCL for {} s; NCCL {} cannot end such a call; use NCCL {} or later, or a non-blocking communicator",
          handle,
          handle.function(),
          handle.timeout().toMillis() / MILLIS_PER_SECOND,
          library,
          FeatureVersions.REVOKE.version());
      return;
    }
    BlockingCalls.start("abort", () -> abortOverdue(call));
  }

  private void abortOverdue(int call) {
    String function = handle.function();
    LateCall known = late;
    Awaited awaited = known.call == call ? known.awaited.join() : handle.awaited();
    // The call may have returned by itself.
    if (handle.watchedCall() != call) {
      return;
    }
    handle.markOverdue(awaited);
    LOG.warn(
        "{}: {} has been inside NCCL for {} s: {}; the communicator is aborted",
        handle,
        function,
        handle.timeout().toMillis() / MILLIS_PER_SECOND,
        awaited.text());
    try {
      context.abort();
    } catch (RuntimeException failure) {
      LOG.warn("{}: the abort of an overdue call has failed", handle, failure);
    }
  }

  /** Implements {@link CommunicatorDriver#abort}. */
  void abort() {
    handle.awaitEmpty(CALL_TIMEOUT);
    endBlockedCall();
    handle.freeIfUnused();
  }

  /**
   * Ends the call of a thread that is still inside a blocking communicator to enqueue an operation.
   * Calls that create children, register memory and so on are not ended, because NCCL's revoke
   * could access memory that they free; they run on a separate thread with a deadline.
   */
  private void endBlockedCall() {
    String function = handle.function();
    if (handle.watchedCall() == 0 || !handle.blocking()) {
      return;
    }
    if (!handle.abortEndsCalls()) {
      LOG.warn(
          "{}: a thread is inside {}, which NCCL {} cannot end; it frees the communicator when it returns",
          handle,
          function,
          library);
      return;
    }
    MemorySegment comm = handle.retain();
    if (comm == null) {
      return;
    }
    int result;
    try {
      result =
          BlockingCalls.callUninterrupted(
              "ncclCommRevoke",
              abortTimeout(),
              "NCCL to end " + function + " of " + handle,
              () -> endCall(comm),
              late -> handle.release());
    } catch (NcclTimeoutException late) {
      LOG.warn(
          "{}: NCCL did not end {} in time; its thread frees the communicator when it returns",
          handle,
          function,
          late);
      return;
    } catch (RuntimeException failure) {
      handle.release();
      throw failure;
    }
    handle.release();
    if (result != nccl_h.ncclSuccess()) {
      LOG.warn(
          "{}: NCCL did not end {}; its thread frees the communicator when it returns",
          handle,
          function,
          NcclResults.failure(result, "ncclCommRevoke"));
    } else if (handle.watchedCall() != 0) {
      // NCCL clears its flags at the end of a revoke, and refuses a second one. A thread that has
      // not looked at them meanwhile waits on.
      LOG.warn(
          "{}: {} has not returned although NCCL has ended the operations; unless it returns, its thread and the communicator are leaked",
          handle,
          function);
    }
  }

  /** Ends the call of the thread inside, and waits for that thread to leave. */
  private int endCall(MemorySegment comm) {
    handle.useDevice();
    int result = nccl_h.ncclCommRevoke(comm, nccl_h.NCCL_REVOKE_DEFAULT());
    // The freeing may follow. The other thread must not wait for that, and may have to drop a
    // capture, which the freeing would wait for.
    handle.awaitEmpty(LEAVE_TIMEOUT);
    return result;
  }

  private Duration abortTimeout() {
    return handle.timeout().compareTo(ABORT_TIMEOUT) < 0 ? handle.timeout() : ABORT_TIMEOUT;
  }

  /** Aborts the ended communicator, whose pointer this thread has taken. */
  void abortNative(MemorySegment comm) {
    try {
      BlockingCalls.runUninterrupted(
          "ncclCommAbort",
          abortTimeout(),
          "NCCL to free " + handle,
          () -> {
            handle.useDevice();
            int result = nccl_h.ncclCommAbort(comm);
            registrations.releaseAll();
            CloseAll.all(
                List.of(
                    noMoreKernels,
                    () -> NcclResults.check(result, "ncclCommAbort"),
                    children::freeAbandoned));
          });
    } catch (NcclTimeoutException e) {
      LOG.warn("{}: ncclCommAbort is late; its thread keeps running", handle, e);
    }
  }

  /** Implements {@link CommunicatorDriver#close}. */
  void close() {
    if (!handle.created()) {
      return;
    }
    if (context.isAborted() && !revoked) {
      // A shrink or a failed revoke has ended the operations: there is nothing to finish.
      context.markAborted();
      abort();
      return;
    }
    try {
      if (!revoked) {
        finishBeforeClose();
      }
      context.endGraphs();
      BlockingCalls.runUninterrupted(
          "ncclCommDestroy",
          handle.timeout().plus(CommunicatorHandle.GRACE),
          handle.peers()
              + ", or the end of a CUDA graph that other code has captured operations in",
          this::finalizeAndDestroy);
    } catch (RuntimeException | Error failure) {
      abortAfter(failure);
      throw failure;
    } finally {
      if (freed) {
        noMoreKernels.run();
      }
    }
  }

  private void finishBeforeClose() {
    // A stream on which an operation has failed never completes.
    handle
        .asyncError()
        .ifPresent(
            failure -> {
              throw failure;
            });
    context.awaitStreams("close");
  }

  private void abortAfter(Throwable failure) {
    context.markAborted();
    CloseAll.after(failure, this::abort);
  }

  /**
   * Finalizes and destroys the communicator. Its streams have completed, so that a blocking
   * finalize does not wait. A revoked communicator must not be finalized.
   */
  private void finalizeAndDestroy() {
    handle.useDevice();
    MemorySegment comm = handle.enterToEnd("ncclCommFinalize", CALL_TIMEOUT);
    int result;
    try {
      registrations.deregisterAll(comm);
      if (suspension.inProgress()) {
        suspension.resumeInside(comm);
      }
      if (!revoked) {
        handle.callAndSettle("ncclCommFinalize", () -> nccl_h.ncclCommFinalize(comm));
      }
      result = nccl_h.ncclCommDestroy(handle.takeInside());
    } finally {
      handle.leave();
    }
    if (result != nccl_h.ncclSuccess() && result != nccl_h.ncclUnhandledCudaError()) {
      throw abortedAfterDestroy(NcclResults.failure(result, "ncclCommDestroy"));
    }
    // A CUDA failure can occur after NCCL has freed the communicator, when it restores the thread's
    // device. An abort could then access memory that has been reused. The memory registered with
    // the communicator is unused, since the communicator has been finalized or revoked.
    freed = true;
    if (context.isAborted()) {
      // The caller has stopped waiting, or does not check.
      noMoreKernels.run();
    }
    registrations.releaseAll();
    children.freeAbandoned();
    NcclResults.check(result, "ncclCommDestroy");
  }

  /** Aborts a communicator that NCCL refused to destroy, and of which it has freed nothing. */
  private NcclException abortedAfterDestroy(NcclException refusal) {
    context.markAborted();
    handle.giveBack();
    CloseAll.after(refusal, handle::freeIfUnused);
    return refusal;
  }
}
