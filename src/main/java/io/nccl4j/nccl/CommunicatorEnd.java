package io.nccl4j.nccl;

import io.nccl4j.NcclException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.internal.BlockingCalls;
import io.nccl4j.internal.NcclResults;
import io.nccl4j.internal.util.CloseAll;
import io.nccl4j.internal.util.MemoryShortage;
import io.nccl4j.spi.CommunicatorContext;
import io.nccl4j.spi.CommunicatorDriver;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.List;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * How an {@code ncclComm_t} ends: in order, by an abort, or by an abort of a call that lasts for
 * too long. A revoke ends its operations alone.
 */
final class CommunicatorEnd {
  // The name of the public class, which stands above this one.
  private static final Logger LOG = LogManager.getLogger("io.nccl4j.nccl.NcclCommunicator");

  // How long a close waits for a call in flight before it refuses, and an abort before it ends that
  // call, and after that before it leaves the freeing to the call's thread.
  private static final Duration PATIENCE = Duration.ofMillis(200);
  private static final double MILLIS_PER_SECOND = 1000;

  private final NativeCommunicator communicator;
  private final CommunicatorContext context;
  private final CommunicatorHandle handle;
  private final NcclVersion library;
  private final RegistrationTable registrations;
  private final Suspension suspension;
  private final NativeChildren children;
  private final Runnable noMoreKernels;
  private volatile boolean revoked;
  // Whether ncclCommDestroy has freed the communicator.
  private volatile boolean freed;

  /**
   * Takes what ends together with the communicator.
   *
   * @param gone reports that no kernel of the communicator can run here any more; idempotent
   */
  CommunicatorEnd(
      NativeCommunicator communicator,
      RegistrationTable registrations,
      Suspension suspension,
      NativeChildren children,
      Runnable gone) {
    this.communicator = communicator;
    this.context = communicator.context();
    this.handle = communicator.handle();
    this.library = communicator.library();
    this.registrations = registrations;
    this.suspension = suspension;
    this.children = children;
    this.noMoreKernels = gone;
  }

  NativeCommunicator communicator() {
    return communicator;
  }

  /** Does what {@link NcclCommunicator#revoke} promises. */
  void revoke() {
    String function = "ncclCommRevoke";
    library.require(function);
    if (revoked) {
      return;
    }
    if (!context.isRevoked()) {
      context.checkConnected();
    }
    communicator.inside(
        function,
        communicator.peers(),
        comm -> {
          communicator.endOperations();
          communicator.callAndSettle(
              function, () -> nccl_h.ncclCommRevoke(comm, nccl_h.NCCL_REVOKE_DEFAULT()));
          revoked = true;
        });
  }

  /**
   * Does what can be done about a call that has lasted for the timeout.
   *
   * @param call the handle's number of it
   */
  void endOverdueCall(int call) {
    if (!handle.abortEndsCalls()) {
      LOG.warn(
          "{}: {} has been inside NCCL for {} s; NCCL {} has no function that ends such a call, while {} has one and non-blocking communicators need none",
          communicator,
          handle.enqueuingFunction(),
          communicator.timeout().toMillis() / MILLIS_PER_SECOND,
          library,
          FeatureVersions.REVOKE.version());
      return;
    }
    BlockingCalls.start("abort", () -> abortOverdue(call));
  }

  private void abortOverdue(int call) {
    String function = handle.enqueuingFunction();
    boolean said = false;
    // The call may return after all.
    while (handle.enqueuing() == call) {
      communicator.markOverdue(true);
      try {
        if (!said) {
          LOG.warn(
              "{}: {} has been inside NCCL for {} s; the communicator is aborted",
              communicator,
              function,
              communicator.timeout().toMillis() / MILLIS_PER_SECOND);
          said = true;
        }
        context.abort();
        return;
      } catch (RuntimeException failure) {
        LOG.warn("{}: the abort of an overdue call has failed", communicator, failure);
        return;
      } catch (OutOfMemoryError shortage) {
        // The thread inside the call waits for this one, and nothing else would abort it later.
        MemoryShortage.pause();
      }
    }
    communicator.markOverdue(false);
  }

  /** Does what {@link CommunicatorDriver#abort} promises. */
  void abort() {
    handle.end(PATIENCE);
    endBlockedCall();
    freeIfNobodyInside();
  }

  /**
   * Ends the call of a thread that is still inside a blocking communicator to enqueue something.
   * What makes children, registers and the like is left alone, since NCCL's revoke could meet
   * memory that it frees; it has a deadline and a thread of its own.
   */
  private void endBlockedCall() {
    String function = handle.enqueuingFunction();
    if (function == null || !handle.blocking()) {
      return;
    }
    if (!handle.abortEndsCalls()) {
      LOG.warn(
          "{}: a thread is inside {}, which NCCL {} cannot end; it frees the communicator when it returns",
          communicator,
          function,
          library);
      return;
    }
    MemorySegment comm = handle.retain();
    if (comm == null) {
      return;
    }
    try {
      BlockingCalls.runUninterrupted(
          "ncclCommRevoke",
          communicator.timeout(),
          "NCCL to end " + function + " of " + communicator,
          () -> endCall(comm));
    } catch (NcclException failure) {
      LOG.warn(
          "{}: NCCL did not end {}; its thread frees the communicator when it returns",
          communicator,
          function,
          failure);
    }
  }

  private void endCall(MemorySegment comm) {
    try {
      communicator.useDevice();
      NcclResults.check(
          nccl_h.ncclCommRevoke(comm, nccl_h.NCCL_REVOKE_DEFAULT()), "ncclCommRevoke");
    } finally {
      // The other thread leaves first, and need not wait for the freeing: it may have a capture to
      // drop, which NCCL waits for then.
      handle.awaitNobody(PATIENCE);
      handle.release();
    }
  }

  /** Aborts the ended communicator unless a thread is inside, which then does so when it leaves. */
  void freeIfNobodyInside() {
    MemorySegment comm = handle.take();
    if (comm != null) {
      abort(comm);
    }
  }

  private void abort(MemorySegment comm) {
    try {
      BlockingCalls.runUninterrupted(
          "ncclCommAbort",
          communicator.timeout(),
          "NCCL to free " + communicator,
          () -> {
            if (!handle.beginFreeing()) {
              return;
            }
            communicator.useDevice();
            int result = nccl_h.ncclCommAbort(comm);
            registrations.forgetAll();
            CloseAll.all(
                List.of(
                    noMoreKernels,
                    () -> NcclResults.check(result, "ncclCommAbort"),
                    children::freeLate));
          });
    } catch (NcclTimeoutException e) {
      LOG.warn("{}: NCCL did not end the abort; its thread stays", communicator, e);
    } catch (Error failure) {
      handle.releaseUnlessFreeing();
      throw failure;
    }
  }

  /** Does what {@link CommunicatorDriver#close} promises. */
  void close() {
    if (!handle.made()) {
      return;
    }
    if (context.isAborted() && !revoked) {
      // Its operations were ended by a shrink, or by a revoke that failed: there is nothing to
      // finish.
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
          communicator.timeout().plus(NativeCommunicator.GRACE),
          communicator.peers()
              + ", or the end of a CUDA graph that other code has captured operations in",
          this::finalizeAndDestroy);
    } catch (RuntimeException failure) {
      abortAfter(failure);
      throw failure;
    } finally {
      if (freed) {
        noMoreKernels.run();
      }
    }
  }

  private void finishBeforeClose() {
    // A stream on which an operation has failed never comes to its end.
    communicator
        .asyncError()
        .ifPresent(
            failure -> {
              throw failure;
            });
    context.awaitStreams("close");
  }

  private void abortAfter(RuntimeException failure) {
    context.markAborted();
    CloseAll.after(failure, this::abort);
  }

  /**
   * Ends the communicator when its streams are done, so that a blocking finalize has nothing to
   * wait for. A revoked one must not be finalized.
   */
  private void finalizeAndDestroy() {
    communicator.useDevice();
    MemorySegment comm = handle.enterToEnd("ncclCommFinalize", PATIENCE);
    int result;
    try {
      registrations.closeAll(comm);
      if (suspension.inProgress()) {
        suspension.endInside(comm);
      }
      if (!revoked) {
        communicator.callAndSettle("ncclCommFinalize", () -> nccl_h.ncclCommFinalize(comm));
      }
      result = nccl_h.ncclCommDestroy(handle.takeInside());
    } finally {
      handle.leave();
    }
    if (result != nccl_h.ncclSuccess() && result != nccl_h.ncclUnhandledCudaError()) {
      throw abortedAfterDestroy(NcclResults.failure(result, "ncclCommDestroy"));
    }
    // A CUDA failure can come after NCCL has freed the communicator, from making the thread's
    // device current again: an abort could be of memory that is others' by now. Nothing uses what
    // the communicator knew, since it has been finalized or revoked.
    freed = true;
    if (context.isAborted()) {
      // The caller has given up waiting, or will not look.
      noMoreKernels.run();
    }
    registrations.forgetAll();
    children.freeLate();
    NcclResults.check(result, "ncclCommDestroy");
  }

  /** Frees by an abort what NCCL has refused to destroy, of which it has freed nothing. */
  private NcclException abortedAfterDestroy(NcclException refusal) {
    handle.releaseUnlessFreeing();
    CloseAll.after(refusal, this::freeIfNobodyInside);
    return refusal;
  }
}
