package io.nccl4j.nccl;

import io.nccl4j.NcclException;
import io.nccl4j.Operation;
import io.nccl4j.bindings.nccl.ncclSimInfo_t;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.internal.BlockingCalls;
import io.nccl4j.internal.NcclResults;
import io.nccl4j.internal.util.CloseAll;
import io.nccl4j.spi.EnqueuedCall;
import io.nccl4j.spi.EnqueuedOperation;
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
 * The launching of a group that has been recorded and checked: {@code ncclGroupStart}, the calls,
 * {@code ncclGroupEnd}.
 */
final class NcclGroup {
  // NCCL_SIM_INFO_INITIALIZER's, which has no name of its own.
  private static final int SIM_INFO_MAGIC = 0x74685283;
  private static final double NANOS_PER_MICROSECOND = 1_000;
  // NCCL makes sends and receives of the others. A simulation that has any leaves its communicator
  // noted as if it were being connected, and later ones never are.
  private static final Set<Operation> ESTIMABLE =
      EnumSet.of(
          Operation.ALL_REDUCE,
          Operation.BROADCAST,
          Operation.REDUCE,
          Operation.ALL_GATHER,
          Operation.REDUCE_SCATTER);

  private static final IntSupplier GROUP_END = nccl_h::ncclGroupEnd;

  private NcclGroup() {}

  /**
   * Launches the calls together. If one is refused, {@code ncclGroupEnd} is still called: it
   * discards the group, which the refused call has made invalid, and resets this thread's group
   * depth.
   */
  static void launch(List<? extends EnqueuedCall> calls) {
    checkOneKind(calls);
    Set<NativeCommunicator> communicators = new LinkedHashSet<>();
    NativeCommunicator ended;
    try {
      enter(calls, communicators);
      boolean blocking = communicator(calls.getFirst()).handle().blocking();
      IntSupplier end = blocking ? GROUP_END : () -> endUnasked(communicators.iterator());
      int result = callTogether(calls, end);
      ended = blocking && result != nccl_h.ncclSuccess() ? ended(communicators) : null;
      if (ended == null) {
        settle(communicators, result);
      }
    } catch (Throwable failure) {
      communicators.forEach(communicator -> CloseAll.after(failure, communicator.handle()::leave));
      throw failure;
    }
    leaveAll(communicators);
    if (ended != null) {
      throw abortedTogether(communicators, ended.endedDuring("ncclGroupEnd"));
    }
  }

  /** Leaves every communicator: leaving one that has ended frees it, which can fail. */
  private static void leaveAll(Set<NativeCommunicator> communicators) {
    CloseAll.all(
        communicators.stream()
            .<Runnable>map(communicator -> communicator.handle()::leave)
            .toList());
  }

  private static NativeCommunicator ended(Set<NativeCommunicator> communicators) {
    return communicators.stream()
        .filter(communicator -> communicator.handle().ended())
        .findFirst()
        .orElse(null);
  }

  /**
   * Aborts the communicators of a group whose call was ended for one of them: NCCL has ended the
   * connecting of all, which leaves them unusable.
   */
  private static NcclException abortedTogether(
      Set<NativeCommunicator> communicators, NcclException failure) {
    communicators.forEach(communicator -> CloseAll.after(failure, communicator.context()::abort));
    return failure;
  }

  /** Launches calls of one communicator together, in the same way. */
  static void launch(List<? extends EnqueuedCall> calls, NativeCommunicator communicator) {
    CommunicatorHandle handle = communicator.handle();
    handle.enter("ncclGroupEnd"); // Where the time goes.
    try {
      IntSupplier end = handle.blocking() ? GROUP_END : () -> handle.guarded(GROUP_END);
      int result = callTogether(calls, end);
      if (result != 0) {
        communicator.settle(result, "ncclGroupEnd");
      }
    } finally {
      handle.leave();
    }
  }

  /**
   * Ends the group while nobody asks its communicators for their state: NCCL notes in each, without
   * a lock, the work that goes on in the background, and whoever asks takes that note.
   */
  private static int endUnasked(Iterator<NativeCommunicator> communicators) {
    return communicators.hasNext()
        ? communicators.next().handle().guarded(() -> endUnasked(communicators))
        : nccl_h.ncclGroupEnd();
  }

  /**
   * Estimates how long the last collective takes, without launching anything. It is done in a
   * thread of its own: connecting for it may wait for the peers, and whatever fails leaves the
   * caller's group depth as it was.
   */
  static Optional<Duration> estimate(List<? extends EnqueuedCall> calls) {
    checkEstimable(calls);
    float[] microseconds = new float[1];
    Duration limit =
        calls.stream()
            .map(call -> communicator(call).timeout())
            .max(Duration::compareTo)
            .orElseThrow();
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
    communicator(calls.getFirst()).useDevice();
    Set<NativeCommunicator> communicators = new LinkedHashSet<>();
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
      communicators.forEach(communicator -> communicator.handle().leave());
    }
  }

  /** Throws for what NCCL would launch, or would spoil its communicator with. */
  private static void checkEstimable(List<? extends EnqueuedCall> calls) {
    if (calls.isEmpty()) {
      throw new IllegalArgumentException("the group is empty; there must be a collective in it");
    }
    for (EnqueuedCall call : calls) {
      if (!(call instanceof EnqueuedOperation one) || !ESTIMABLE.contains(one.operation())) {
        throw new IllegalArgumentException(
            "the group has a call that NCCL cannot estimate; it can only estimate " + ESTIMABLE);
      }
      if (!communicator(one).handle().blocking()) {
        throw new IllegalArgumentException(
            "NCCL would launch the group instead of estimating it, because it is of non-blocking "
                + communicator(one));
      }
      if (communicator(one).context().size() == 1) {
        throw new IllegalArgumentException(
            "NCCL would launch the group instead of estimating it, because it is of one rank: "
                + communicator(one));
      }
    }
  }

  /** Enters each communicator of the calls once, noting it in the set for the caller to leave. */
  private static void enter(List<? extends EnqueuedCall> calls, Set<NativeCommunicator> entered) {
    NativeCommunicator last = null;
    for (EnqueuedCall call : calls) {
      // Mostly it is that of the call before.
      if (communicator(call) != last && !entered.contains(communicator(call))) {
        communicator(call).handle().enter("ncclGroupEnd");
        entered.add(communicator(call));
      }
      last = communicator(call);
    }
  }

  private static int callTogether(List<? extends EnqueuedCall> calls, IntSupplier end) {
    NcclResults.check(nccl_h.ncclGroupStart(), "ncclGroupStart");
    boolean complete = false;
    try {
      // By index: an iterator would be an object.
      for (int i = 0; i < calls.size(); i++) {
        enqueue(calls.get(i));
      }
      complete = true;
    } finally {
      if (!complete) {
        // NCCL launches whatever it was not asked to refuse: what failed may have failed before it.
        makeRefusedCall();
        nccl_h.ncclGroupEnd();
      }
    }
    return end.getAsInt();
  }

  private static void enqueue(EnqueuedCall call) {
    if (call instanceof EnqueuedOperation operation) {
      driver(call).collectives().enqueue(operation);
    } else {
      // The only calls of its own that this backend submits.
      ((RmaOperation) call.backendOperation()).enqueue(call.streamDriver());
    }
  }

  /** Makes a call that NCCL must refuse, after which the group's end launches nothing. */
  private static void makeRefusedCall() {
    MemorySegment none = MemorySegment.NULL;
    nccl_h.ncclAllReduce(none, none, 1, nccl_h.ncclFloat(), nccl_h.ncclSum(), none, none);
  }

  /** Waits for all communicators, then throws the first failure. */
  private static void settle(Set<NativeCommunicator> communicators, int result) {
    if (result != nccl_h.ncclInProgress()) {
      NcclResults.check(result, "ncclGroupEnd");
      return;
    }
    CloseAll.all(
        communicators.stream()
            .<Runnable>map(communicator -> () -> communicator.settle(result, "ncclGroupEnd"))
            .toList());
  }

  private static void checkOneKind(List<? extends EnqueuedCall> calls) {
    boolean blocking = communicator(calls.getFirst()).handle().blocking();
    for (EnqueuedCall call : calls) {
      if (communicator(call).handle().blocking() != blocking) {
        throw new IllegalArgumentException(
            "the group mixes blocking and non-blocking communicators, which NCCL cannot launch together: "
                + communicator(calls.getFirst())
                + " and "
                + communicator(call));
      }
    }
  }

  private static NativeCommunicator communicator(EnqueuedCall call) {
    return driver(call).communicator();
  }

  private static NcclCommunicatorDriver driver(EnqueuedCall call) {
    return (NcclCommunicatorDriver) call.communicatorDriver();
  }
}
