package io.nccl4j.nccl;

import io.nccl4j.Operation;
import io.nccl4j.bindings.nccl.ncclSimInfo_t;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.internal.ffm.BlockingCalls;
import io.nccl4j.spi.EnqueuedCall;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.EnumSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;

/** Estimates how long a group takes, with {@code ncclGroupSimulateEnd}. */
final class GroupEstimate {
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

  private GroupEstimate() {}

  /**
   * Estimates the duration of the last collective without launching anything. Runs on a separate
   * thread: connecting may wait for the peers, and a failure must not change the caller's group
   * depth.
   */
  static Optional<Duration> estimate(List<? extends EnqueuedCall> calls) {
    checkEstimable(calls);
    float[] microseconds = new float[1];
    Duration limit =
        calls.stream()
            .map(call -> NcclLaunch.handle(call).timeout())
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
    NcclLaunch.handle(calls.getFirst()).useDevice();
    Set<CommunicatorHandle> communicators = new LinkedHashSet<>();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment info = ncclSimInfo_t.allocate(arena);
      ncclSimInfo_t.size(info, ncclSimInfo_t.sizeof());
      ncclSimInfo_t.magic(info, SIM_INFO_MAGIC);
      ncclSimInfo_t.version(info, nccl_h.NCCL_VERSION_CODE());
      ncclSimInfo_t.estimatedTime(info, nccl_h.NCCL_UNDEF_FLOAT());
      NcclLaunch.enter(calls, communicators);
      int result = NcclLaunch.callTogether(calls, () -> nccl_h.ncclGroupSimulateEnd(info));
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
      if (!NcclLaunch.handle(call).blocking()) {
        throw new IllegalArgumentException(
            "NCCL would launch the group instead of estimating it, because it is of non-blocking "
                + NcclLaunch.handle(call));
      }
      if (NcclLaunch.handle(call).context().size() == 1) {
        throw new IllegalArgumentException(
            "NCCL would launch the group instead of estimating it, because it is of one rank: "
                + NcclLaunch.handle(call));
      }
    }
  }
}
