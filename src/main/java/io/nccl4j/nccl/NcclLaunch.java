package io.nccl4j.nccl;

import io.nccl4j.NcclException;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.internal.util.CloseAll;
import io.nccl4j.spi.Background;
import io.nccl4j.spi.EnqueuedCall;
import java.lang.foreign.MemorySegment;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.function.IntSupplier;

/**
 * Launches checked calls: one by its function, several as a group between {@code ncclGroupStart}
 * and {@code ncclGroupEnd}.
 */
final class NcclLaunch {
  private NcclLaunch() {}

  static void launch(List<? extends EnqueuedCall> calls) {
    if (calls.size() == 1) {
      launch(calls.getFirst());
    } else {
      launchGroup(calls);
    }
  }

  private static void launch(EnqueuedCall call) {
    CommunicatorHandle handle = handle(call);
    String function = OperationCalls.function(call);
    handle.enter(function);
    try {
      int result = OperationCalls.call(call, handle);
      // After a success there is nothing to wait for, also on a non-blocking communicator.
      if (result != nccl_h.ncclSuccess()) {
        handle.settleLaunch(result, function);
      }
    } finally {
      handle.leave();
    }
  }

  /**
   * Launches the calls as one group. If NCCL rejects a call, {@code ncclGroupEnd} is still called:
   * it discards the group, which the rejected call made invalid, and resets this thread's group
   * depth.
   */
  private static void launchGroup(List<? extends EnqueuedCall> calls) {
    checkOneKind(calls);
    Set<CommunicatorHandle> communicators = new LinkedHashSet<>();
    CommunicatorHandle ended;
    try {
      enter(calls, communicators);
      boolean blocking = handle(calls.getFirst()).blocking();
      IntSupplier end =
          blocking ? nccl_h::ncclGroupEnd : () -> endGuarded(communicators.iterator());
      int result = callTogether(calls, end);
      ended = blocking && result != nccl_h.ncclSuccess() ? firstEnded(communicators) : null;
      if (ended == null) {
        settle(communicators, result);
      }
    } catch (Throwable failure) {
      communicators.forEach(communicator -> CloseAll.after(failure, communicator::leave));
      throw failure;
    }
    leaveAll(communicators);
    if (ended != null) {
      throw abortedTogether(communicators, ended.endException("ncclGroupEnd"));
    }
  }

  /** Leaves every communicator. Leaving one that has ended frees it, which can fail. */
  private static void leaveAll(Set<CommunicatorHandle> communicators) {
    CloseAll.all(
        communicators.stream().<Runnable>map(communicator -> communicator::leave).toList());
  }

  private static CommunicatorHandle firstEnded(Set<CommunicatorHandle> communicators) {
    return communicators.stream()
        .filter(communicator -> communicator.ended())
        .findFirst()
        .orElse(null);
  }

  /**
   * Aborts the communicators of a group after the call was ended for one of them. NCCL then stopped
   * connecting all of them, and they are unusable.
   */
  private static NcclException abortedTogether(
      Set<CommunicatorHandle> communicators, NcclException failure) {
    List<Runnable> aborts =
        communicators.stream()
            .<Runnable>map(communicator -> communicator.context()::abort)
            .toList();
    CloseAll.after(failure, () -> Background.runTogether("nccl4j-abort", aborts));
    return failure;
  }

  /**
   * Ends the group while no thread can query the state of its communicators. NCCL records the
   * background work in each of them without a lock, and a query consumes that record.
   */
  private static int endGuarded(Iterator<CommunicatorHandle> communicators) {
    return communicators.hasNext()
        ? communicators.next().guarded(() -> endGuarded(communicators))
        : nccl_h.ncclGroupEnd();
  }

  /** Enters each communicator of the calls once, and adds it to the set for the caller to leave. */
  static void enter(List<? extends EnqueuedCall> calls, Set<CommunicatorHandle> entered) {
    for (EnqueuedCall call : calls) {
      if (!entered.contains(handle(call))) {
        handle(call).enter("ncclGroupEnd"); // The call that may block, for messages.
        entered.add(handle(call));
      }
    }
  }

  /** Makes the calls of a group, then ends it. */
  static int callTogether(List<? extends EnqueuedCall> calls, IntSupplier end) {
    NcclResults.check(nccl_h.ncclGroupStart(), "ncclGroupStart");
    boolean complete = false;
    try {
      calls.forEach(NcclLaunch::enqueue);
      complete = true;
    } finally {
      if (!complete) {
        // The failure may not have come from NCCL, which would then launch the other calls.
        makeInvalidCall();
        nccl_h.ncclGroupEnd();
      }
    }
    return end.getAsInt();
  }

  private static void enqueue(EnqueuedCall call) {
    int result = OperationCalls.call(call, handle(call));
    if (result != nccl_h.ncclInProgress()) {
      NcclResults.check(result, OperationCalls.function(call));
    }
  }

  /** Makes a call that NCCL rejects, so that the end of the group launches nothing. */
  private static void makeInvalidCall() {
    MemorySegment none = MemorySegment.NULL;
    nccl_h.ncclAllReduce(none, none, 1, nccl_h.ncclFloat(), nccl_h.ncclSum(), none, none);
  }

  /** Waits for all communicators, then throws the first failure. */
  private static void settle(Set<CommunicatorHandle> communicators, int result) {
    if (result == nccl_h.ncclSuccess()) {
      return;
    }
    if (result != nccl_h.ncclInProgress()) {
      CommunicatorHandle ended = firstEnded(communicators);
      if (ended != null) {
        throw ended.endException("ncclGroupEnd");
      }
      NcclResults.check(result, "ncclGroupEnd");
    }
    CloseAll.all(
        communicators.stream()
            .<Runnable>map(communicator -> () -> communicator.settleLaunch(result, "ncclGroupEnd"))
            .toList());
  }

  private static void checkOneKind(List<? extends EnqueuedCall> calls) {
    boolean blocking = handle(calls.getFirst()).blocking();
    for (EnqueuedCall call : calls) {
      if (handle(call).blocking() != blocking) {
        throw new IllegalArgumentException(
            "the group mixes blocking and non-blocking communicators, which NCCL cannot launch together: "
                + handle(calls.getFirst())
                + " and "
                + handle(call));
      }
    }
  }

  static CommunicatorHandle handle(EnqueuedCall call) {
    return ((NcclCommunicatorDriver) call.communicatorDriver()).handle();
  }
}
