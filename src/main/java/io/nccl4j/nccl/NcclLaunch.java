package io.nccl4j.nccl;

import io.nccl4j.NcclException;
import io.nccl4j.Operation;
import io.nccl4j.bindings.nccl.ncclSimInfo_t;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.internal.ffm.BlockingCalls;
import io.nccl4j.internal.util.CloseAll;
import io.nccl4j.spi.Background;
import io.nccl4j.spi.EnqueuedCall;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.EnumSet;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.function.IntSupplier;

/**
 * Launches checked calls: one by its function, several as a group between {@code ncclGroupStart}
 * and {@code ncclGroupEnd}. Also estimates how long a group takes.
 */
final class NcclLaunch {
  // The magic number in NCCL_SIM_INFO_INITIALIZER; nccl.h has no constant for it.
  private static final int SIM_INFO_MAGIC = 0x74685283;
  private static final double NANOS_PER_MICROSECOND = 1_000;
  // NCCL implements the other operations with sends and receives. Simulating one leaves the
  // communicator marked as being connected, so that NCCL never connects it later.
  private static final Set<Operation> ESTIMABLE =
      EnumSet.of(
          Operation.ALL_REDUCE,
          Operation.BROADCAST,
          Operation.REDUCE,
          Operation.ALL_GATHER,
          Operation.REDUCE_SCATTER);

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
    String function = NativeCalls.function(call);
    handle.enter(function);
    try {
      int result = NativeCalls.make(call, handle);
      if (result != nccl_h.ncclSuccess()) {
        handle.settle(result, function);
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
      ended = blocking && result != nccl_h.ncclSuccess() ? ended(communicators) : null;
      if (ended == null) {
        settle(communicators, result);
      }
    } catch (Throwable failure) {
      communicators.forEach(communicator -> CloseAll.after(failure, communicator::leave));
      throw failure;
    }
    leaveAll(communicators);
    if (ended != null) {
      throw abortedTogether(communicators, ended.endedDuring("ncclGroupEnd"));
    }
  }

  /** Leaves every communicator. Leaving one that has ended frees it, which can fail. */
  private static void leaveAll(Set<CommunicatorHandle> communicators) {
    CloseAll.all(
        communicators.stream().<Runnable>map(communicator -> communicator::leave).toList());
  }

  private static CommunicatorHandle ended(Set<CommunicatorHandle> communicators) {
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

  /**
   * Estimates the duration of the last collective without launching anything. Runs on a separate
   * thread: connecting may wait for the peers, and a failure must not change the caller's group
   * depth.
   */
  static Optional<Duration> estimate(List<? extends EnqueuedCall> calls) {
    checkEstimable(calls);
    float[] microseconds = new float[1];
    Duration limit =
        calls.stream().map(call -> handle(call).timeout()).max(Duration::compareTo).orElseThrow();
    BlockingCalls.run(
        "ncclGroupSimulateEnd",
        limit,
        "the peers, which must estimate the same group",
        () -> microseconds[0] = simulate(calls));
    return microseconds[0] == nccl_h.NCCL_UNDEF_FLOAT()
        ? Optional.empty()
        : Optional.of(Duration.ofNanos(Math.round(microseconds[0] * NANOS_PER_MICROSECOND)));
  }

  private static float simulate(List<? extends EnqueuedCall> calls) {
    handle(calls.getFirst()).useDevice();
    Set<CommunicatorHandle> communicators = new LinkedHashSet<>();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment info = ncclSimInfo_t.allocate(arena);
      ncclSimInfo_t.size(info, ncclSimInfo_t.sizeof());
      ncclSimInfo_t.magic(info, SIM_INFO_MAGIC);
      ncclSimInfo_t.version(info, nccl_h.NCCL_VERSION_CODE());
      ncclSimInfo_t.estimatedTime(info, nccl_h.NCCL_UNDEF_FLOAT());
      enter(calls, communicators);
      int result = callTogether(calls, () -> nccl_h.ncclGroupSimulateEnd(info));
      NcclResults.check(result, "ncclGroupSimulateEnd");
      return ncclSimInfo_t.estimatedTime(info);
    } finally {
      communicators.forEach(communicator -> communicator.leave());
    }
  }

  /** Rejects groups that NCCL would launch, or that would break their communicator. */
  private static void checkEstimable(List<? extends EnqueuedCall> calls) {
    if (calls.isEmpty()) {
      throw new IllegalArgumentException("the group is empty; it must contain a collective");
    }
    for (EnqueuedCall call : calls) {
      if (call.operation() == null || !ESTIMABLE.contains(call.operation())) {
        throw new IllegalArgumentException(
            "the group has a call that NCCL cannot estimate; it can only estimate " + ESTIMABLE);
      }
      if (!(call.communicatorDriver() instanceof NcclCommunicatorDriver)) {
        throw new IllegalArgumentException(
            "the group has a call of another backend, "
                + call.communicatorDriver()
                + "; NCCL can only estimate its own");
      }
      if (!handle(call).blocking()) {
        throw new IllegalArgumentException(
            "NCCL would launch the group instead of estimating it, because it is of non-blocking "
                + handle(call));
      }
      if (handle(call).context().size() == 1) {
        throw new IllegalArgumentException(
            "NCCL would launch the group instead of estimating it, because it is of one rank: "
                + handle(call));
      }
    }
  }

  /** Enters each communicator of the calls once, and adds it to the set for the caller to leave. */
  private static void enter(List<? extends EnqueuedCall> calls, Set<CommunicatorHandle> entered) {
    for (EnqueuedCall call : calls) {
      if (!entered.contains(handle(call))) {
        handle(call).enter("ncclGroupEnd"); // The call that takes the time.
        entered.add(handle(call));
      }
    }
  }

  private static int callTogether(List<? extends EnqueuedCall> calls, IntSupplier end) {
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
    int result = NativeCalls.make(call, handle(call));
    if (result != nccl_h.ncclInProgress()) {
      NcclResults.check(result, NativeCalls.function(call));
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
      CommunicatorHandle ended = ended(communicators);
      if (ended != null) {
        throw ended.endedDuring("ncclGroupEnd");
      }
      NcclResults.check(result, "ncclGroupEnd");
    }
    CloseAll.all(
        communicators.stream()
            .<Runnable>map(communicator -> () -> communicator.settle(result, "ncclGroupEnd"))
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

  private static CommunicatorHandle handle(EnqueuedCall call) {
    return ((NcclCommunicatorDriver) call.communicatorDriver()).handle();
  }
}
