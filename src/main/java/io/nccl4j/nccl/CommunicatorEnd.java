package io.nccl4j.nccl;

import io.nccl4j.NcclException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.internal.BlockingCalls;
import io.nccl4j.internal.NcclResults;
import io.nccl4j.internal.util.MemoryShortage;
import io.nccl4j.internal.util.Steps;
import io.nccl4j.spi.CommunicatorContext;
import io.nccl4j.spi.CommunicatorDriver;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.List;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * How an {@code ncclComm_t} ends: in order, by an abort, or by an abort of a call that lasts for
 * too long.
 */
final class CommunicatorEnd {
  private static final Logger LOG = LogManager.getLogger(NcclCommunicator.class);

  // How long a close waits for a call in flight before it refuses, and an abort before it ends that
  // call, and after that before it leaves the freeing to the call's thread.
  private static final Duration PATIENCE = Duration.ofMillis(200);
  private static final double MILLIS_PER_SECOND = 1000;

  private final NcclCommunicatorDriver communicator;
  private final CommunicatorContext context;
  private final CommunicatorHandle handle;
  private final NcclVersion library;
  private volatile boolean overdue;
  // Whether ncclCommDestroy has freed the communicator.
  private volatile boolean freed;

  CommunicatorEnd(
      NcclCommunicatorDriver communicator,
      CommunicatorContext context,
      CommunicatorHandle handle,
      NcclVersion library) {
    this.communicator = communicator;
    this.context = context;
    this.handle = handle;
    this.library = library;
  }

  /** Returns whether a call has lasted for too long, which ends the communicator. */
  boolean overdue() {
    return overdue;
  }

  /**
   * Does what can be done about a call that has lasted for the timeout.
   *
   * @param call the handle's number of it
   */
  void endOverdueCall(int call) {
    if (!communicator.abortEndsCalls()) {
      LOG.warn(
          "{}: {} has been inside NCCL for {} s; NCCL {} has no function that ends such a call, while {} has one and non-blocking communicators need none",
          communicator,
          handle.enqueuingFunction(),
          communicator.timeout().toMillis() / MILLIS_PER_SECOND,
          library,
          FirstRelease.REVOKE.version());
      return;
    }
    BlockingCalls.start("abort", () -> abortOverdue(call));
  }

  private void abortOverdue(int call) {
    String function = handle.enqueuingFunction();
    boolean said = false;
    // The call may return after all.
    while (handle.enqueuing() == call) {
      overdue = true;
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
    overdue = false;
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
    if (function == null || !communicator.blocking()) {
      return;
    }
    if (!communicator.abortEndsCalls()) {
      LOG.warn(
          "{}: a thread is inside {}, which NCCL {} cannot end; it frees the communicator when it returns",
          communicator,
          function,
          library);
      return;
    }
    MemorySegment comm = handle.hold();
    if (comm == null) {
      return;
    }
    try {
      BlockingCalls.runUninterrupted(
          "ncclCommRevoke",
          communicator.timeout(),
          "NCCL to end " + function + " of " + communicator,
          () -> revoke(comm));
    } catch (NcclException failure) {
      LOG.warn(
          "{}: NCCL did not end {}; its thread frees the communicator when it returns",
          communicator,
          function,
          failure);
    }
  }

  private void revoke(MemorySegment comm) {
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
            communicator.registrations().forgetAll();
            Steps.all(
                List.of(
                    communicator::gone,
                    () -> NcclResults.check(result, "ncclCommAbort"),
                    communicator.children()::freeLate));
          });
    } catch (NcclTimeoutException e) {
      LOG.warn("{}: NCCL did not end the abort; its thread stays", communicator, e);
    } catch (Error failure) {
      handle.giveBackUnlessFreeing();
      throw failure;
    }
  }

  /** Does what {@link CommunicatorDriver#close} promises. */
  void close() {
    if (!handle.made()) {
      return;
    }
    if (context.aborted() && !communicator.revokedByNccl()) {
      // Its operations were ended by a shrink, or by a revoke that failed: there is nothing to
      // finish.
      abort();
      return;
    }
    try {
      if (!communicator.revokedByNccl()) {
        finishBeforeClose();
      }
      context.endGraphs();
      BlockingCalls.runUninterrupted(
          "ncclCommDestroy",
          communicator.timeout().plus(NcclCommunicatorDriver.GRACE),
          communicator.peers()
              + ", or the end of a CUDA graph that other code has captured operations in",
          this::finalizeAndDestroy);
    } catch (RuntimeException failure) {
      abortAfter(failure);
      throw failure;
    } finally {
      if (freed) {
        communicator.gone();
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
    Steps.after(failure, this::abort);
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
      communicator.registrations().closeAll(comm);
      if (communicator.suspension().lasts()) {
        communicator.suspension().endInside(comm);
      }
      if (!communicator.revokedByNccl()) {
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
    if (context.aborted()) {
      // The caller has given up waiting, or will not look.
      communicator.gone();
    }
    communicator.registrations().forgetAll();
    communicator.children().freeLate();
    NcclResults.check(result, "ncclCommDestroy");
  }

  /** Frees by an abort what NCCL has refused to destroy, of which it has freed nothing. */
  private NcclException abortedAfterDestroy(NcclException refusal) {
    handle.giveBack();
    Steps.after(refusal, this::freeIfNobodyInside);
    return refusal;
  }
}
